package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// todo is what completions asked for: work that submits descriptors, and so is
// done only between submissions, in the order in which it was asked for.
type todo struct {
	stage   fifo[uint32]         // requests that want chunks
	starved [2]fifo[uint32]      // of them, sends and receives that wait for one to be free
	reduce  fifo[shm.Descriptor] // reductions that the engine wants done here
	drops   fifo[uint64]         // messages that a probe took for a caller who had gone
	unlocks fifo[lock]           // locks that came for a caller who had gone

	exposures fifo[*Exposed] // exposures that are nobody's
}

// progress takes every completion that is there and does what they ask for.
// Preconditions: s.mu is held.
func (s *Session) progress() error {
	if err := s.drain(); err != nil {
		return err
	}
	s.feed()                          // the application may have freed arena memory
	for s.todo.any() && s.hasRoom() { // else the next look does it
		if err := s.work(); err != nil {
			return err
		}
		if err := s.drain(); err != nil {
			return err
		}
	}
	if behind := s.todo.any(); behind != s.behind.Load() { // a store is a barrier, and looks are many
		s.behind.Store(behind)
	}
	return nil
}

func (t *todo) any() bool {
	return t.stage.len() > 0 || t.reduce.len() > 0 || t.drops.len() > 0 || t.unlocks.len() > 0 || t.exposures.len() > 0
}

// work does the first thing that is to do of each kind.
func (s *Session) work() error {
	if id, ok := s.todo.stage.pop(); ok {
		o := s.ops.list[id]
		o.queued = false
		if err := s.stage(id, o); err != nil {
			return err
		}
	}
	if d, ok := s.todo.reduce.pop(); ok {
		if err := s.reduce(&d); err != nil {
			return err
		}
	}
	if handle, ok := s.todo.drops.pop(); ok {
		d := shm.Descriptor{Op: shm.OpDrop}
		d.SetBody(0, 0, handle, 0)
		if err := s.push(&d); err != nil {
			return err
		}
	}
	if e, ok := s.todo.exposures.pop(); ok {
		if err := s.unexpose(e); err != nil {
			return err
		}
	}
	if l, ok := s.todo.unlocks.pop(); ok {
		return s.unlock(l)
	}
	return nil
}

// drain takes every completion that is there. It submits nothing.
// Preconditions: s.mu is held.
func (s *Session) drain() error {
	if s.closed {
		return ErrClosed
	}
	var d shm.Descriptor
	taken := false
	for s.complete.Pop(&d) {
		taken = true
		if err := s.take(&d); err != nil {
			return err
		}
	}
	if taken {
		s.rouse() // what came may be for another goroutine, and the word is shared
	}
	return nil
}

// take handles one completion.
func (s *Session) take(d *shm.Descriptor) error {
	if d.Op == shm.OpFailed {
		s.failed = true
		return nil
	}
	if int(d.Req) >= len(s.ops.list) || !s.ops.list[d.Req].open {
		return fmt.Errorf("%w: it completed request %d, which is not open", ErrSidecarGone, d.Req)
	}
	o := s.ops.list[d.Req]
	switch d.Op {
	case shm.OpDone:
		s.done(d.Req, o, d)
	case shm.OpMatched:
		if o.asked = true; o.receives {
			o.source, o.rtag, o.length = d.Peer, d.Tag, d.Len()
			o.want = min(int(d.Len()), o.room)
		}
		s.wantStage(d.Req, o)
	case shm.OpStaged:
		return s.staged(d.Req, o, d)
	case shm.OpReduce:
		s.todo.reduce.push(*d)
	}
	return nil
}

// done ends an operation: a payload is copied to where the caller wants it.
func (s *Session) done(id uint32, o *op, d *shm.Descriptor) {
	o.done, o.status = true, d.Status
	if o.sends {
		s.ops.sending--
	}
	if o.receives {
		o.noteEnvelope(d)
	}
	if o.exposure != nil {
		s.noteExposure(o, d.Status)
	}
	if d.Class == shm.ClassInline {
		o.length = uint64(len(d.Inline()))
		if o.receives {
			copy(o.buf, d.Inline())
		} else {
			copy(o.old[:], d.Inline())
		}
	} else {
		o.length, o.aux = d.Len(), d.Aux()
		if o.receives && (d.Status == shm.StatusOK || d.Status == shm.StatusTruncated) {
			s.deposit(o)
		}
	}
	if !o.detached {
		if s.closing && o.sends {
			s.noteLate(o) // nobody can wait for it any more
		}
		s.reclaim(o)
		return
	}
	if o.takes && d.Status == shm.StatusOK {
		s.todo.drops.push(o.aux)
	}
	if o.locks.comm != nil && d.Status == shm.StatusOK {
		s.todo.unlocks.push(o.locks)
	}
	if o.buffered {
		s.noteLate(o)
	}
	s.drop(id, o)
}

// deposit copies a message that came in a slot or in one chunk to where the caller wants
// it: of one that was longer, its beginning.
func (s *Session) deposit(o *op) {
	var mem []byte
	switch {
	case o.slotted:
		mem = s.slabMem[o.slot : o.slot+s.slab.slotBytes]
	case o.whole:
		mem = s.memoryOf(o.spare.list[0])
	}
	copy(o.buf, mem[:min(o.length, uint64(len(mem)))])
}

// noteEnvelope keeps whose message a receive or a probe has met. An end without a
// message has no envelope (LAYOUT §5): its peer and tag are what was asked for, or
// zero, and an error says what the caller has asked for. Only a receive from any
// rank, whose sender is lost after they have met, learns from its end who that was.
func (o *op) noteEnvelope(d *shm.Descriptor) {
	switch d.Status {
	case shm.StatusOK, shm.StatusTruncated:
	case shm.StatusPeerFailed, shm.StatusPeerLeft:
		if o.peer != AnySource {
			return
		}
	default:
		return
	}
	o.source, o.rtag = d.Peer, d.Tag
	if d.Flags&shm.FlagTyped != 0 {
		o.sent = uint8(min(d.Context, 255))
	}
}

// noteLate keeps the failure of a send whose caller has gone on: Close reports it. A
// failed job shows in every other call anyway.
func (s *Session) noteLate(o *op) {
	if err := s.cause(o.status, o.length); err != nil && s.late == nil {
		s.late = s.fail(o.what, o.comm, o.peer, o.tag, o.bytes, err)
	}
}

// reclaim takes back the slab's part in an operation that the engine is done
// with. Chunks of which no OpStaged came were too late for it (LAYOUT §5.1).
func (s *Session) reclaim(o *op) {
	if o.slotted {
		s.slab.free(o.slot)
		o.slotted = false
	}
	o.whole = false
	for o.chunks.n > 0 {
		s.freeChunk(o, o.chunks.pop())
	}
	for o.spare.n > 0 {
		s.freeChunk(o, o.spare.pop())
	}
}

// drop frees an operation's number and whatever it still has.
// Preconditions: the engine is done with it, or never heard of it.
func (s *Session) drop(id uint32, o *op) {
	s.reclaim(o)
	o.loan.giveBack(&s.arena)
	s.ops.release(id)
}
