package outrigger

import (
	"context"
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// begin allocates an operation of communicator c and its request number.
// Preconditions: s.mu is held.
func (s *Session) begin(what string, c *Comm, peer, tag, n int) (*op, Request, error) {
	if err := s.usable(c); err != nil {
		return nil, Request{}, err
	}
	o, id, err := s.ops.alloc()
	if err != nil {
		// Sends that no call waits for free their numbers when their completions are handled. Nothing
		// is submitted: the entry of the ring that enterCall has found is for this operation.
		if err := s.drain(); err != nil {
			return nil, Request{}, err
		}
		if o, id, err = s.ops.alloc(); err != nil {
			return nil, Request{}, err
		}
	}
	o.what, o.comm, o.peer, o.tag, o.bytes = what, c, peer, tag, n
	return o, Request{s, id, o.gen}, nil
}

// usable returns an error if nothing can be submitted.
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

// hasRoom reports whether a descriptor can be published at once. If the ring is corrupt it reports
// true, and push returns the error.
func (s *Session) hasRoom() bool {
	n, err := s.submit.Free()
	return err != nil || n > 0
}

// enterCall locks the mutex for a call that submits a descriptor, after the ring has room for it. A
// full ring means that the engine is behind, or does not read this rank's ring until peers have
// accepted what this rank has sent. That may last as long as a peer is stopped; meanwhile other
// goroutines get their completions, and contexts may end. If enterCall returns an error, the mutex
// is not locked.
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

// submitOp publishes the descriptor of an operation that begin has allocated. If it cannot, it frees
// the operation.
func (s *Session) submitOp(r Request, o *op, d *shm.Descriptor) (Request, error) {
	d.Req = r.id
	if err := s.push(d); err != nil {
		s.drop(r.id, o)
		return Request{}, err
	}
	return r, nil
}

// push publishes d.
// Preconditions: s.mu is held, and the ring has room: enterCall or hasRoom has found it since the last
// push.
func (s *Session) push(d *shm.Descriptor) error {
	if s.closed {
		return ErrClosed
	}
	ok, err := s.submit.Push(d)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSidecarGone, err)
	}
	if !ok && s.gone.Load() { // enterCall waits for room no longer
		return s.withFailure(ErrSidecarGone)
	}
	if !ok {
		return errors.New("the ring of submissions is full")
	}
	// The engine sets its flag before its last poll of the ring, and this goroutine reads the flag
	// after publishing. Therefore at least one of the two sees the other's store.
	if !s.control.Sleeping() {
		return nil
	}
	if err := wake.Ring(s.doorbell); err != nil {
		s.gone.Store(true) // an engine that cannot be woken makes no progress
		return fmt.Errorf("%w: %w", ErrSidecarGone, err)
	}
	return nil
}
