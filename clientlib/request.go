package outrigger

import (
	"context"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Status describes a received message.
type Status struct {
	Source int // rank in the communicator
	Tag    int
	Bytes  int
}

// Count is the number of elements of type T in a message.
func Count[T Number](st Status) int { return st.Bytes / sizeOf[T]() }

// Request is an operation under way. It is a small value; its zero value is a
// request that is complete. Wait, or Test that reports true, ends it.
type Request struct {
	s   *Session
	id  uint32
	gen uint32
}

// op is the state behind a request; its index is the request number of the
// shared-memory contract. Guarded by Session.mu.
type op struct {
	gen      uint32
	what     string
	comm     *Comm
	peer     int
	tag      int
	buf      []byte // private memory of a receive or a staged send
	bytes    int
	done     bool
	detached bool // nobody waits: freed by its completion
	receives bool
	slot     uint64 // slab slot in use
	slotted  bool

	status shm.Status
	source uint32
	rtag   uint64
	length uint64
	aux    uint64
	inline [shm.InlineMax]byte

	staged bool
	off    int // bytes handed to the engine so far, or chunks supplied for
	want   int
	pieces int // chunks with the engine
	coll   *collective
}

// opTable gives out request numbers.
type opTable struct {
	list     []*op
	free     []uint32
	detached int
}

func (t *opTable) alloc() (*op, uint32, error) {
	if len(t.free) == 0 {
		n := len(t.list)
		if n >= shm.MaxRequests {
			return nil, 0, ErrTooManyRequests
		}
		grow := max(n, 64)
		block := make([]op, grow)
		for i := range block {
			t.list = append(t.list, &block[i])
		}
		for i := n + grow - 1; i >= n; i-- {
			t.free = append(t.free, uint32(i))
		}
	}
	id := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	o := t.list[id]
	*o = op{gen: o.gen + 1}
	return o, id, nil
}

func (t *opTable) release(id uint32) {
	o := t.list[id]
	if o.detached {
		t.detached--
	}
	*o = op{gen: o.gen + 1}
	t.free = append(t.free, id)
}

// state finds a request's operation; nil: it has ended.
func (r Request) state() *op {
	if r.s == nil {
		return nil
	}
	if o := r.s.ops.list[r.id]; o.gen == r.gen {
		return o
	}
	return nil
}

// Wait waits for the end of the operation. When ctx ends first the request
// stays open: cancel it, or wait again.
func (r Request) Wait(ctx context.Context) (Status, error) {
	if r.s == nil {
		return Status{}, nil
	}
	r.s.mu.Lock()
	o := r.state()
	if o != nil && o.done {
		defer r.s.mu.Unlock()
		return r.s.finish(r.id, o)
	}
	r.s.mu.Unlock()
	if o == nil {
		return Status{}, nil
	}
	if err := r.s.waitDone(ctx, o, r.gen); err != nil {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return Status{}, r.s.fail(o.what, o.comm, o.peer, o.tag, o.bytes, err)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.state() == nil {
		return Status{}, nil // another goroutine waited for the same request
	}
	return r.s.finish(r.id, o)
}

// Test reports whether the operation has ended, and ends the request if so.
func (r Request) Test() (Status, bool, error) {
	if r.s == nil {
		return Status{}, true, nil
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	o := r.state()
	if o == nil {
		return Status{}, true, nil
	}
	if !o.done {
		if err := r.s.progress(); err != nil {
			return Status{}, false, r.s.fail(o.what, o.comm, o.peer, o.tag, o.bytes, err)
		}
	}
	if !o.done {
		return Status{}, false, nil
	}
	st, err := r.s.finish(r.id, o)
	return st, true, err
}

// Cancel asks for the end of a receive or send that nothing has happened to
// yet. Wait then returns ErrCancelled, or the operation's result when it was
// too late.
func (r Request) Cancel() error {
	if r.s == nil {
		return nil
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	o := r.state()
	if o == nil || o.done {
		return nil
	}
	r.s.d = shm.Descriptor{Op: shm.OpCancel, Req: r.id}
	if err := r.s.push(); err != nil {
		return r.s.fail("cancel", o.comm, o.peer, o.tag, 0, err)
	}
	return nil
}

// finish makes the result of an operation that is done and frees its number.
func (s *Session) finish(id uint32, o *op) (Status, error) {
	st := Status{Source: o.peer, Tag: o.tag, Bytes: int(o.length)}
	if o.receives && o.source != shm.AnySource {
		st.Source, st.Tag = o.comm.rankOf(o.source), int(o.rtag)
	}
	err := s.cause(o)
	if o.coll != nil {
		if err == nil {
			o.coll.copyOut(s)
		}
		o.coll.release(s)
	}
	if err != nil {
		err = s.fail(o.what, o.comm, st.Source, st.Tag, o.bytes, err)
	}
	s.ops.release(id)
	return st, err
}

// WaitAll waits for all requests and returns the first error.
func WaitAll(ctx context.Context, requests []Request) error {
	var first error
	for _, r := range requests {
		if _, err := r.Wait(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// WaitAny waits until one of the requests ends and returns its index; -1 when
// there is none. Zero requests do not count.
func WaitAny(ctx context.Context, requests []Request) (int, Status, error) {
	var s *Session
	for _, r := range requests {
		if r.s != nil {
			s = r.s
		}
	}
	if s == nil {
		return -1, Status{}, nil
	}
	hit := -1
	err := s.waitFor(ctx, func() bool {
		for i, r := range requests {
			if r.s == nil {
				continue
			}
			if o := r.state(); o == nil || o.done {
				hit = i
				return true
			}
		}
		return false
	})
	if err != nil {
		return -1, Status{}, s.fail("wait", s.world, AnySource, AnyTag, 0, err)
	}
	st, err := requests[hit].Wait(ctx)
	return hit, st, err
}
