package outrigger

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Window is memory that the ranks of a communicator expose to each other. Accesses are complete at
// their target after Flush, Unlock or Fence, or after the target's Wait; between two of these, puts
// and gets are executed in any order. Displacements are in elements.
type Window[T Number] struct {
	comm   *Comm
	number uint32
	local  []T
	parts  *parts // sizes of the ranks' parts; nil: the sizes are not known, and bounds are not checked on this rank
	freed  atomic.Bool

	started, posted []int // ranks of the groups of the open access and exposure epochs
}

// NewWindow creates a window. It is collective. local is memory from Alloc, and may be empty on ranks
// that expose nothing. If ranks expose different sizes, each rank stores 8 bytes for each rank, so
// that accesses out of bounds fail at once.
func NewWindow[T Number](ctx context.Context, c *Comm, local []T) (*Window[T], error) {
	s := c.session
	d := shm.Descriptor{Op: shm.OpWin}
	d.SetBody(0, 0, uint64(c.context), 0)
	if len(local) > 0 {
		off, ok := s.inArena(bytesOf(local))
		if !ok {
			return nil, s.fail("window", c, AnySource, AnyTag, 0, fmt.Errorf("%w: a window needs memory from Alloc", ErrNotAllocated))
		}
		if err := s.live(bytesOf(local)); err != nil {
			return nil, s.fail("window", c, AnySource, AnyTag, 0, err)
		}
		d.Class = shm.ClassArena
		d.SetBody(uint64(off), uint64(len(local)*sizeOf[T]()), uint64(c.context), 0)
	}
	number, err := c.agree(ctx)
	if err != nil {
		return nil, c.during("window", err)
	}
	d.Context = number
	if _, err := c.call(ctx, "window", AnySource, d, nil, nil); err != nil {
		return nil, err
	}
	p, err := c.parts(ctx, len(local)*sizeOf[T]())
	if err != nil {
		return nil, c.during("window", err)
	}
	s.expose(number, bytesOf(local))
	return &Window[T]{comm: c, number: number, local: local, parts: p}, nil
}

// Local returns this rank's part.
func (w *Window[T]) Local() []T { return w.local }

// Free frees the window. This rank must have no lock of it. It is collective.
func (w *Window[T]) Free(ctx context.Context) error {
	if err := w.comm.session.stillLocked(w.number); err != nil {
		return w.fail("window free", AnySource, 0, err)
	}
	if err := w.Fence(ctx); err != nil {
		return err
	}
	w.freed.Store(true)
	w.comm.session.withdraw(w.number)
	_, err := w.comm.call(ctx, "window free", AnySource, shm.Descriptor{Op: shm.OpWinFree, Context: w.number}, nil, nil)
	return err
}

func (w *Window[T]) fail(what string, target, bytes int, err error) error {
	return w.comm.session.fail(what, w.comm, target, AnyTag, bytes, err)
}

// byteOffset returns the byte offset of n elements from disp on in the target's part.
func (w *Window[T]) byteOffset(target, disp, n int) (uint64, error) {
	if err := cmp.Or(w.usable(), w.comm.checkPeer(target)); err != nil {
		return 0, err
	}
	if size := sizeOf[T](); disp < 0 || disp > math.MaxInt/size {
		return 0, fmt.Errorf("%w: displacement %d", ErrInvalid, disp)
	}
	if err := w.bounds(target, disp, n); err != nil {
		return 0, err
	}
	return uint64(disp * sizeOf[T]()), nil
}

// access executes one access whose operand is in the arena, or is copied there.
func (w *Window[T]) access(ctx context.Context, what string, code shm.Op, tag uint64, buf []T, target, disp int) error {
	c, b := w.comm, bytesOf(buf)
	at, err := w.byteOffset(target, disp, len(buf))
	if err == nil {
		err = c.session.live(b)
	}
	if err != nil {
		return w.fail(what, target, len(b), err)
	}
	if len(b) == 0 {
		return nil
	}
	d := shm.Descriptor{Op: code, Peer: c.world(target), Context: w.number, Tag: tag}
	d.SetBody(0, 0, at, 0)
	if off, shared := c.session.inArena(b); shared {
		d.Class = shm.ClassArena
		d.SetBody(uint64(off), uint64(len(b)), at, 0)
		_, err = c.call(ctx, what, target, d, nil, nil)
		return err
	}
	var result []byte
	if code == shm.OpGet {
		result = b
	}
	_, err = c.call(ctx, what, target, d, b, result)
	return err
}

// Put writes src to the target's part from disp on. It returns when src may be changed.
func (w *Window[T]) Put(ctx context.Context, src []T, target, disp int) error {
	return w.access(ctx, "put", shm.OpPut, 0, src, target, disp)
}

// Get reads the target's part from disp on into dst, and returns when dst has the data.
func (w *Window[T]) Get(ctx context.Context, dst []T, target, disp int) error {
	return w.access(ctx, "get", shm.OpGet, 0, dst, target, disp)
}

// Accumulate combines src into the target's part, element by element, each
// atomically: target = src op target.
func (w *Window[T]) Accumulate(ctx context.Context, src []T, target, disp int, op Op) error {
	return w.access(ctx, "accumulate", shm.OpAcc, uint64(typeCode[T]())<<8|uint64(op.code), src, target, disp)
}

// FetchOp atomically combines one element into the target's part and returns the previous value. NoOp
// only reads, Replace swaps.
func (w *Window[T]) FetchOp(ctx context.Context, operand T, target, disp int, op Op) (T, error) {
	return w.fetch(ctx, "fetch", shm.OpFetch, op.code, []T{operand}, target, disp)
}

// CompareAndSwap atomically stores swap if the element equals compare, and returns the previous value.
func (w *Window[T]) CompareAndSwap(ctx context.Context, compare, swap T, target, disp int) (T, error) {
	return w.fetch(ctx, "compare and swap", shm.OpCas, 0, []T{compare, swap}, target, disp)
}

func (w *Window[T]) fetch(ctx context.Context, what string, code shm.Op, opCode uint8, operands []T, target, disp int) (T, error) {
	c := w.comm
	var old [1]T
	at, err := w.byteOffset(target, disp, 1)
	if err != nil {
		return old[0], w.fail(what, target, 0, err)
	}
	d := shm.Descriptor{
		Op: code, Peer: c.world(target), Context: w.number, Tag: at,
		Status: shm.Status(uint32(typeCode[T]())<<8 | uint32(opCode)),
	}
	d.SetInline(bytesOf(operands))
	out, err := c.call(ctx, what, target, d, nil, nil)
	if err == nil {
		copy(bytesOf(old[:]), out.old[:])
	}
	return old[0], err
}

// Fence completes all accesses of all ranks. It is collective.
func (w *Window[T]) Fence(ctx context.Context) error {
	if err := w.FlushAll(ctx); err != nil {
		return err
	}
	return w.comm.fence(ctx, w.number)
}

// lock identifies the lock of a rank's part of a window.
type lock struct {
	comm   *Comm
	window uint32
	target int
}

// name records the lock that r requests, so that it can be released if its caller has given up.
func (r Request) name(l lock) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if o := r.state(); o != nil {
		o.locks = l
	}
}

// unlock releases a lock that was granted after its caller had given up: otherwise no other rank
// could ever get it.
// Preconditions: s.mu is held.
func (s *Session) unlock(l lock) error {
	o, id, err := s.ops.alloc() // succeeds: the request number of the lock has been freed
	if err != nil {
		return err
	}
	o.what, o.comm, o.peer, o.tag, o.detached = "unlock", l.comm, l.target, AnyTag, true
	_, err = s.submitOp(Request{s, id, o.gen}, o, &shm.Descriptor{Op: shm.OpUnlock, Context: l.window, Peer: l.comm.world(l.target)})
	return err
}

func (w *Window[T]) plain(ctx context.Context, what string, code shm.Op, target int) error {
	c := w.comm
	d := shm.Descriptor{Op: code, Context: w.number, Peer: shm.AnySource}
	if err := w.usable(); err != nil {
		return w.fail(what, target, 0, err)
	}
	if target != AnySource {
		if err := c.checkPeer(target); err != nil {
			return w.fail(what, target, 0, err)
		}
		d.Peer = c.world(target)
	}
	_, err := c.call(ctx, what, target, d, nil, nil)
	return err
}

// Lock waits for the lock of the target's part: an exclusive lock, or one that other shared locks do
// not exclude. A rank has one lock of a part at a time, for all its goroutines. A lock that is granted
// after ctx has ended is released.
func (w *Window[T]) Lock(ctx context.Context, target int, exclusive bool) error {
	c, l := w.comm, lock{w.comm, w.number, target}
	err := cmp.Or(w.usable(), c.checkPeer(target))
	if err == nil {
		err = c.session.locking(l)
	}
	if err != nil {
		return w.fail("lock", target, 0, err)
	}
	defer func() { c.session.locked(l, err) }()
	d := shm.Descriptor{Op: shm.OpLock, Context: w.number, Peer: c.world(target)}
	if exclusive {
		d.Flags = shm.FlagExclusive
	}
	var r Request
	if r, err = c.startCall(ctx, "lock", target, &d, nil, nil); err != nil {
		return err
	}
	r.name(l)
	_, err = r.awaitWhole(ctx)
	return err
}

// Unlock completes this rank's accesses to the target and releases its lock. If this rank does not
// have the lock, it returns an ErrInvalid.
func (w *Window[T]) Unlock(ctx context.Context, target int) error {
	err := cmp.Or(w.usable(), w.comm.checkPeer(target))
	if err == nil {
		err = w.comm.session.unlocking(lock{w.comm, w.number, target})
	}
	if err != nil {
		return w.fail("unlock", target, 0, err)
	}
	return w.plain(ctx, "unlock", shm.OpUnlock, target)
}

// Flush completes this rank's accesses to the target.
func (w *Window[T]) Flush(ctx context.Context, target int) error {
	return w.plain(ctx, "flush", shm.OpFlush, target)
}

// FlushAll completes this rank's accesses to all targets.
func (w *Window[T]) FlushAll(ctx context.Context) error {
	return w.plain(ctx, "flush", shm.OpFlush, AnySource)
}
