package outrigger

import (
	"context"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// begin starts an operation of communicator c with its request number.
// Preconditions: s.mu is held.
func (s *Session) begin(what string, c *Comm, peer, tag, n int) (*op, Request, error) {
	if err := s.usable(c); err != nil {
		return nil, Request{}, err
	}
	o, id, err := s.ops.alloc()
	if err != nil {
		// Sends that nobody waits for free their numbers when they are seen
		// to be complete.
		if err := s.progress(); err != nil {
			return nil, Request{}, err
		}
		if o, id, err = s.ops.alloc(); err != nil {
			return nil, Request{}, err
		}
	}
	o.what, o.comm, o.peer, o.tag, o.bytes = what, c, peer, tag, n
	return o, Request{s, id, o.gen}, nil
}

// usable says why nothing can be submitted, if so.
func (s *Session) usable(c *Comm) error {
	switch {
	case s.ending:
		return ErrClosed
	case s.gone.Load():
		return s.withFailure(ErrSidecarGone)
	case c.freed:
		return fmt.Errorf("%w: the communicator has been freed", ErrInvalid)
	}
	return nil
}

// hasRoom reports whether a descriptor can be published at once. What is wrong with
// the ring is told by push.
func (s *Session) hasRoom() bool {
	n, err := s.submit.Free()
	return err != nil || n > 0
}

// enterCall takes the mutex for a call that submits something, when the ring has room
// for it. A full ring is an engine that is behind, or that does not hear this rank
// until its peers have taken what it has sent: it may be so for as long as a peer is
// stopped, and meanwhile others complete what they wait for, and contexts end. When it
// returns an error the mutex is not held.
func (s *Session) enterCall(ctx context.Context) error {
	s.mu.Lock()
	for i := 0; !s.closed && !s.gone.Load() && !s.hasRoom(); i++ {
		err := s.drain()
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if i%clockEvery == clockEvery-1 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		wake.Yield()
		s.mu.Lock()
	}
	return nil
}

// submitOp publishes the descriptor of an operation that begin started, and
// takes the operation back when it cannot.
func (s *Session) submitOp(r Request, o *op, d *shm.Descriptor) (Request, error) {
	d.Req = r.id
	if err := s.push(d); err != nil {
		s.drop(r.id, o)
		return Request{}, err
	}
	return r, nil
}

// push publishes d. Mostly there is room (enterCall); when the ring is full all the
// same, completions are taken meanwhile, so that neither side waits for the other.
// What they ask for is only noted, since it would overtake d.
// Preconditions: s.mu is held.
func (s *Session) push(d *shm.Descriptor) error {
	if s.closed {
		return ErrClosed
	}
	for {
		ok, err := s.submit.Push(d)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrSidecarGone, err)
		}
		if ok {
			break
		}
		if s.gone.Load() {
			return s.withFailure(ErrSidecarGone)
		}
		if err := s.drain(); err != nil {
			return err
		}
		wake.Yield()
	}
	// The engine sets its flag before its last look at the ring, and we look
	// at the flag after publishing: one of the two sees the other.
	if !s.control.Sleeping() {
		return nil
	}
	if err := wake.Ring(s.doorbell); err != nil {
		s.gone.Store(true) // an engine that cannot be woken is as good as none
		return fmt.Errorf("%w: %w", ErrSidecarGone, err)
	}
	return nil
}
