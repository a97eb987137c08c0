package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// todo is work that completions ask for and that submits descriptors. It is done between
// submissions, in the order in which it was queued.
type todo struct {
	stage   fifo[uint32]         // requests for which chunks can be submitted
	starved [2]fifo[uint32]      // sends [0] and receives [1] that wait for a free chunk
	reduce  fifo[shm.Descriptor] // user-defined operations that the engine requests
	drops   fifo[uint64]         // messages that a probe has claimed after its caller had given up
	unlocks fifo[lock]           // locks that were granted after their caller had given up
	cancels fifo[Request]        // operations whose cancellation found no room in the ring

	exposures fifo[*Exposed] // exposures that were made after their caller had given up
}

// progress handles all completions that are in the ring and does the work that they ask for.
// Preconditions: s.mu is held.
func (s *Session) progress() error {
	if err := s.drain(); err != nil {
		return err
	}
	s.feed()                          // the application may have freed arena memory
	for s.todo.any() && s.hasRoom() { // without room the next poll does it
		if err := s.work(); err != nil {
			return err
		}
		if err := s.drain(); err != nil {
			return err
		}
	}
	if behind := s.todo.any(); behind != s.backlog.Load() { // a store is a barrier, which is too expensive for each poll
		s.backlog.Store(behind)
	}
	return nil
}

func (t *todo) any() bool {
	return t.stage.len() > 0 || t.reduce.len() > 0 || t.drops.len() > 0 || t.unlocks.len() > 0 || t.cancels.len() > 0 || t.exposures.len() > 0
}

// work does the oldest work of each kind, as far as the ring has room.
func (s *Session) work() error {
	if id, ok := next(s, &s.todo.stage); ok {
		o := s.ops.list[id]
		o.queued = false
		if err := s.stage(id, o); err != nil {
			return err
		}
	}
	if d, ok := next(s, &s.todo.reduce); ok {
		if err := s.reduce(&d); err != nil {
			return err
		}
	}
	if handle, ok := next(s, &s.todo.drops); ok {
		d := shm.Descriptor{Op: shm.OpDrop}
		d.SetBody(0, 0, handle, 0)
		if err := s.push(&d); err != nil {
			return err
		}
	}
	if e, ok := next(s, &s.todo.exposures); ok {
		if err := s.unexpose(e); err != nil {
			return err
		}
	}
	if r, ok := next(s, &s.todo.cancels); ok {
		if err := s.cancel(r); err != nil {
			return err
		}
	}
	if l, ok := next(s, &s.todo.unlocks); ok {
		return s.unlock(l)
	}
	return nil
}

// next removes the first element of a queue if the ring has room for the descriptor that it needs.
func next[E any](s *Session, q *fifo[E]) (e E, ok bool) {
	if q.len() == 0 || !s.hasRoom() {
		return e, false
	}
	return q.pop()
}

// drain handles all completions that are in the ring. It submits nothing.
// Preconditions: s.mu is held.
func (s *Session) drain() error {
	if s.closed {
		return ErrClosed
	}
	var d shm.Descriptor
	taken := false
	for s.complete.Pop(&d) {
		taken = true
		if err := s.handle(&d); err != nil {
			return err
		}
	}
	if taken {
		s.wakeSleepers() // a completion may be for another goroutine, and all sleep on one word
	}
	return nil
}

// handle handles one completion.
func (s *Session) handle(d *shm.Descriptor) error {
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
		s.completeOp(d.Req, o, d)
	case shm.OpMatched:
		if o.peerWaits = true; o.receives {
			o.source, o.rtag, o.length = d.Peer, d.Tag, d.Len()
			o.want = min(int(d.Len()), o.room)
		}
		s.queueStage(d.Req, o)
	case shm.OpStaged:
		return s.chunkReturned(d.Req, o, d)
	case shm.OpReduce:
		s.todo.reduce.push(*d)
	}
	return nil
}

// completeOp completes an operation: it records the result, copies a received payload to the caller's
// buffer and returns the memory to the slab. If no caller waits for the operation, completeOp frees it.
func (s *Session) completeOp(id uint32, o *op, d *shm.Descriptor) {
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
			s.noteLate(o) // no call can wait for it after Close
		}
		s.reclaim(o)
		return
	}
	if o.claims && d.Status == shm.StatusOK {
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

// deposit copies a message that was received in a slot or in one chunk to the caller's buffer. If
// the message was longer than the buffer, it copies as much as the buffer holds.
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

// noteEnvelope records source and tag of the message that a receive or a probe has matched. A
// completion without a message has no envelope (LAYOUT §5): its peer and tag are those that were
// requested, or zero, and an error quotes the caller's arguments. The exception is a receive from
// any rank whose sender fails after the match: its completion names the sender.
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

// noteLate records the error of a send whose call has returned; Close reports it. The failure of
// the job is returned by all other calls, too.
func (s *Session) noteLate(o *op) {
	if err := s.cause(o.status, o.length); err != nil && s.late == nil {
		s.late = s.fail(o.what, o.comm, o.peer, o.tag, o.bytes, err)
	}
}

// reclaim frees the slot and the chunks of an operation that the engine has completed. The engine
// returns no chunk that it received after that (LAYOUT §5.1).
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

// drop frees an operation with its number and memory.
// Preconditions: the engine has completed it, or has never received it.
func (s *Session) drop(id uint32, o *op) {
	s.reclaim(o)
	o.loan.returnBlock(&s.arena)
	s.ops.release(id)
}
