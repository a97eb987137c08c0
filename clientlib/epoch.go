package outrigger

import (
	"context"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Epochs of a window: post-start-complete-wait (MPI 4.1, section 12.5.2). Only the ranks that access
// each other synchronise. The target calls Post with the ranks that may access its part, and Wait,
// which returns when they have completed. An origin calls Start with the ranks whose parts it
// accesses, and Complete after its accesses. A rank may be target and origin at a time.
//
// If ctx ends in one of these calls, or a rank fails, the state of the epoch is not known: the window
// can only be freed.

// Post lets the ranks of group access this rank's part. It does not wait for other ranks.
func (w *Window[T]) Post(ctx context.Context, group []int) error {
	if err := w.begin("post", &w.posted, group); err != nil {
		return err
	}
	return w.each(ctx, "post", shm.OpPost, w.posted)
}

// Start waits until the ranks of group have let this one access their parts.
func (w *Window[T]) Start(ctx context.Context, group []int) error {
	if err := w.begin("start", &w.started, group); err != nil {
		return err
	}
	return w.each(ctx, "start", shm.OpStart, w.started)
}

// Complete ends the epoch that Start has begun. The accesses are complete at this rank when Complete
// returns, and at their targets when Wait returns there.
func (w *Window[T]) Complete(ctx context.Context) error {
	return w.finish(ctx, "complete", shm.OpComplete, &w.started)
}

// Wait ends the epoch that Post has begun. It returns when the ranks of the group have called
// Complete and all their accesses to this rank's part are complete.
func (w *Window[T]) Wait(ctx context.Context) error {
	return w.finish(ctx, "wait", shm.OpWait, &w.posted)
}

// begin records the group of an epoch in *open; nil: no epoch is open.
func (w *Window[T]) begin(what string, open *[]int, group []int) error {
	s := w.comm.session
	if err := w.usable(); err != nil {
		return w.fail(what, AnySource, 0, err)
	}
	if !s.hasEpochs {
		return s.fail(what, w.comm, AnySource, AnyTag, 0, fmt.Errorf("%w: this sidecar is of an earlier release without post-start-complete-wait", ErrUnsupported))
	}
	if *open != nil {
		return s.fail(what, w.comm, AnySource, AnyTag, 0, fmt.Errorf("%w: the last %s has not ended", ErrInvalid, what))
	}
	for i, r := range group {
		if err := w.comm.checkPeer(r); err != nil {
			return s.fail(what, w.comm, r, AnyTag, 0, err)
		}
		if slices.Contains(group[:i], r) {
			return s.fail(what, w.comm, r, AnyTag, 0, fmt.Errorf("%w: rank %d is in the group twice", ErrInvalid, r))
		}
	}
	*open = append(make([]int, 0, len(group)), group...)
	return nil
}

// finish ends an epoch.
func (w *Window[T]) finish(ctx context.Context, what string, code shm.Op, open *[]int) error {
	group := *open
	if group == nil {
		return w.comm.session.fail(what, w.comm, AnySource, AnyTag, 0, fmt.Errorf("%w: nothing was begun", ErrInvalid))
	}
	*open = nil
	return w.each(ctx, what, code, group)
}

// each submits the same request for every rank of a group, and waits for all of them.
func (w *Window[T]) each(ctx context.Context, what string, code shm.Op, group []int) error {
	c := w.comm
	requests := make([]Request, 0, len(group))
	var first error
	for _, r := range group {
		q, err := c.startCall(ctx, what, r, &shm.Descriptor{Op: code, Context: w.number, Peer: c.world(r)}, nil, nil)
		if err != nil {
			first = err
			break
		}
		requests = append(requests, q)
	}
	for _, q := range requests {
		if _, err := q.awaitWhole(ctx); first == nil {
			first = err
		}
	}
	return first
}
