package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// push publishes s.d. When the ring is full the engine is behind: completions
// are taken meanwhile, so that neither side waits for the other.
// Preconditions: s.mu is held.
func (s *Session) push() error {
	if s.closed {
		return ErrClosed
	}
	d := s.d // progress, below, uses s.d too
	for {
		ok, err := s.submit.Push(&d)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrSidecarGone, err)
		}
		if ok {
			break
		}
		if s.gone.Load() {
			return s.withFailure(ErrSidecarGone)
		}
		if err := s.progress(); err != nil {
			return err
		}
		wake.Yield()
	}
	// The engine sets its flag before its last look at the ring, and we look
	// at the flag after publishing: one of the two sees the other.
	if s.control.Sleeping() {
		return wake.Ring(s.doorbell)
	}
	return nil
}

// progress takes every completion that is there.
// Preconditions: s.mu is held.
func (s *Session) progress() error {
	if s.closed {
		return ErrClosed
	}
	var d shm.Descriptor
	for s.complete.Pop(&d) {
		if err := s.take(&d); err != nil {
			return err
		}
	}
	return nil
}

// take handles one completion.
func (s *Session) take(d *shm.Descriptor) error {
	if d.Op == shm.OpFailed {
		s.failed = true
		return nil
	}
	if int(d.Req) >= len(s.ops.list) {
		return fmt.Errorf("%w: completion for request %d", ErrSidecarGone, d.Req)
	}
	o := s.ops.list[d.Req]
	switch d.Op {
	case shm.OpDone:
		s.done(d.Req, o, d)
	case shm.OpMatched:
		o.source, o.rtag, o.length = d.Peer, d.Tag, d.Len()
		o.want = min(int(d.Len()), len(o.buf))
		return s.stage(d.Req, o)
	case shm.OpStaged:
		return s.staged(d.Req, o, d)
	case shm.OpReduce:
		return s.reduce(d.Req, o, d)
	}
	return nil
}

// done ends an operation: results are copied to where the caller wants them.
func (s *Session) done(id uint32, o *op, d *shm.Descriptor) {
	o.done, o.status = true, d.Status
	if o.receives {
		o.source, o.rtag = d.Peer, d.Tag
	}
	if d.Class == shm.ClassInline {
		o.length = uint64(d.InlineLen)
		copy(o.inline[:], d.Inline())
		copy(o.buf, d.Inline())
	} else {
		o.length, o.aux = d.Len(), d.Aux()
		if o.receives && o.slotted && d.Status == shm.StatusOK {
			copy(o.buf, s.slabMem[o.slot:o.slot+o.length])
		}
	}
	if o.slotted {
		s.slab.free(o.slot)
	}
	if o.detached {
		// A send whose caller went on long ago. Its failure is reported by
		// Close; a failed job shows in every other call anyway.
		if err := s.cause(o); err != nil && s.late == nil {
			s.late = s.fail(o.what, o.comm, o.peer, o.tag, o.bytes, err)
		}
		s.ops.release(id)
	}
}
