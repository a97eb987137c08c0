// Package local is the link of a sidecar to itself: it carries messages between ranks of
// one pod. A frame is delivered straight from its memory, and a remote read or write is
// one copy. The engine makes one such link and polls it in each turn.
package local

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// Limits of one link.
const (
	queueMax = 1024      // frames between Post and Poll, so that one Poll stays short; Post also stops at half of perPoll in bytes, because later frames wait behind the queued ones
	eagerMax = 8 << 10   // a larger message is faster with one copy by Read than with two through the pool
	perPoll  = 256 << 10 // bytes of frames delivered, and bytes of remote operations moved, in one Poll: some tens of microseconds of copying
)

// Link delivers frames to the sidecar that posts them.
type Link struct {
	self    link.Peer
	memory  link.Memory
	perPoll uint64
	queued  uint64        // bytes of payloads in queue
	queue   []*link.Frame // posted, oldest first; the core does not change them until they are acknowledged, which happens at delivery
	spare   []*link.Frame
	ops     queue.Fair[link.Region, operation]
	keys    map[uint64]*registration
	ended   []uint64 // tokens of operations that Forget has ended; the next Poll reports them

	copies *copyeng.Copies // nil: all operations are copied inline
	far    queue.Fair[link.Region, *offloaded]
	flying []*offloaded // of which no more pieces will be submitted
}

// operation is a remote read or write in flight.
type operation struct {
	token  uint64
	dst    link.Ref
	src    link.Ref
	reg    *registration // of the target
	done   uint64
	notify uint64
	write  bool
}

// registration is memory that operations may access. Operations in flight refer to it, so
// that they end with it.
type registration struct {
	ref    link.Ref
	ended  bool
	copies copyeng.Hold // pieces in flight of offloaded operations
}

// New returns the link of the sidecar self. memory returns the bytes of Refs.
func New(self link.Peer, memory link.Memory) *Link {
	return &Link{self: self, memory: memory, perPoll: perPoll, ops: queue.Fair[link.Region, operation]{PerOwner: link.OperationsPerSession}, far: queue.Fair[link.Region, *offloaded]{PerOwner: link.OperationsPerSession}, keys: map[uint64]*registration{}}
}

// SetMemory replaces the memory given to New, for a caller that implements Memory itself
// and exists only after New.
func (l *Link) SetMemory(m link.Memory) { l.memory = m }

// SetPerPoll replaces the number of bytes that one Poll moves. The simulator uses it: its
// messages are small, and its operations must also last for several turns.
func (l *Link) SetPerPoll(n uint64) { l.perPoll = n }

// Caps returns what the link can do: everything.
func (l *Link) Caps() link.Caps {
	return link.Caps{Name: "local", Register: true, Read: true, Write: true, InOrder: true, Notify: true, GatherMax: 1, EagerMax: eagerMax}
}

// Abilities returns link.Remote alone.
func (l *Link) Abilities() link.Abilities { return link.Abilities{Remote: l} }

// Post queues frames for the next Poll.
func (l *Link) Post(_ link.Peer, frames []*link.Frame) int {
	for i, f := range frames {
		if len(l.queue) >= queueMax || l.queued >= l.perPoll/2 {
			return i
		}
		l.queue = append(l.queue, f)
		l.queued += uint64(f.Head.Length)
	}
	return len(frames)
}

// Poll delivers the frames that were posted before it, and moves remote operations, both
// up to perPoll bytes.
func (l *Link) Poll(sink link.Sink) int {
	if len(l.queue)+len(l.ended)+len(l.flying) == 0 && l.ops.Empty() && l.far.Empty() { // the common case
		return 0
	}
	ended := l.ended
	l.ended = nil
	for _, token := range ended {
		sink.Done(l.self, token, errForgotten)
	}
	work, err := l.deliver(sink)
	if err != nil {
		sink.Down(l.self, fmt.Errorf("%w: %w", link.ErrProtocol, err))
		return len(ended) + work
	}
	work += len(ended) + l.move(sink)
	if len(l.flying) > 0 || !l.far.Empty() {
		work += l.moveFar(sink)
	}
	return work
}

// deliver hands over the oldest frames. A delivery may post more frames; the next Poll
// delivers these and the frames beyond the bound.
func (l *Link) deliver(sink link.Sink) (work int, err error) {
	batch := l.queue
	if len(batch) == 0 {
		return 0, nil
	}
	l.queue = l.spare[:0]
	for bytes := uint64(0); work < len(batch) && bytes < l.perPoll; work++ {
		f := batch[work]
		payload := f.Inline[:]
		if f.Payload.Region != 0 {
			payload = l.memory.Bytes(f.Payload)
		}
		bytes += uint64(f.Head.Length)
		l.queued -= uint64(f.Head.Length)
		if err = sink.Deliver(l.self, &f.Head, payload[:f.Head.Length]); err != nil {
			l.queue, l.queued, l.spare = l.queue[:0], 0, batch
			return work, err
		}
	}
	if work == len(batch) {
		l.spare = batch
		return work, nil
	}
	rest := append(batch[:copy(batch, batch[work:])], l.queue...)
	l.queue, l.spare = rest, l.queue
	return work, nil
}

// move copies pieces of the operations in turn.
func (l *Link) move(sink link.Sink) (work int) {
	for budget := l.perPoll; budget > 0; work++ {
		op := l.ops.Turn()
		if op == nil {
			break
		}
		n := min(link.PieceMax, budget, op.src.Len-op.done)
		if !op.reg.ended {
			copy(l.memory.Bytes(op.dst.Slice(op.done, n)), l.memory.Bytes(op.src.Slice(op.done, n)))
			l.copies.Inline(n)
			op.done += n
			budget -= n
		}
		if op.done < op.src.Len && !op.reg.ended {
			l.ops.EndTurn(true)
			continue
		}
		end := *op
		l.ops.EndTurn(false)
		if end.done < end.src.Len {
			sink.Done(l.self, end.token, fmt.Errorf("%w: the registration has ended", link.ErrKey))
			continue
		}
		l.report(sink, &end)
	}
	return work
}

// report reports an operation that has copied everything.
func (l *Link) report(sink link.Sink, op *operation) {
	sink.Done(l.self, op.token, nil)
	if op.write && op.notify != 0 {
		sink.Written(l.self, op.notify)
	}
}

// Register makes ref accessible under a random key.
func (l *Link) Register(ref link.Ref) (link.Key, error) {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		k := binary.LittleEndian.Uint64(b[:])
		if _, taken := l.keys[k]; k != 0 && !taken {
			l.keys[k] = &registration{ref: ref}
			return link.Key{Key: k}, nil
		}
	}
}

// Deregister ends a registration, and with it the operations that use it. It waits for the
// pieces of them that a channel is copying.
func (l *Link) Deregister(k link.Key) {
	if r := l.keys[k.Key]; r != nil {
		r.ended = true
		delete(l.keys, k.Key)
		l.copies.Wait(&r.copies)
	}
}

// resolve checks an access against its registration, and returns the memory.
func (l *Link) resolve(k link.Key, n uint64) (link.Ref, *registration, error) {
	r, ok := l.keys[k.Key]
	if !ok || n > r.ref.Len || k.Addr > r.ref.Len-n {
		return link.Ref{}, nil, fmt.Errorf("%w: no registration of %d bytes at offset %d under the key", link.ErrKey, n, k.Addr)
	}
	return r.ref.Slice(k.Addr, n), r, nil
}

// Read copies registered memory into dst.
func (l *Link) Read(_ link.Peer, token uint64, dst link.Ref, src link.Key) error {
	from, reg, err := l.resolve(src, dst.Len)
	if err == nil {
		l.start(dst.Region, operation{token: token, dst: dst, src: from, reg: reg})
	}
	return err
}

// Write copies src into registered memory.
func (l *Link) Write(_ link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	to, reg, err := l.resolve(dst, src.Len)
	if err == nil {
		l.start(src.Region, operation{token: token, dst: to, src: src, reg: reg, notify: notify, write: true})
	}
	return err
}

// Forget drops the queued frames, and ends the operations in flight.
func (l *Link) Forget(link.Peer) {
	l.ops.RemoveFunc(func(op *operation) bool {
		l.ended = append(l.ended, op.token)
		return true
	})
	l.forgetFar()
	l.queue, l.queued = l.queue[:0], 0
}

// Close returns nil: there is nothing to release.
func (l *Link) Close() error { return nil }
