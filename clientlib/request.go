package outrigger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Status describes a received message.
type Status struct {
	Source int // rank of the sender in the communicator
	Tag    int
	Bytes  int
}

// Count returns the number of elements of type T in a message.
func Count[T Number](st Status) int { return st.Bytes / sizeOf[T]() }

// Request is an operation in progress. It is a small value; its zero value is a complete request.
// Wait, or Test that reports true, ends it.
type Request struct {
	s   *Session
	id  uint32
	gen uint32
}

// outcome is the result of an operation that has ended.
type outcome struct {
	Status
	code shm.Status
	aux  uint64
	old  [elementMax]byte // value before a fetch operation
}

// state returns the operation of a request, or nil if it has ended.
// Preconditions: the session's mutex is held.
func (r Request) state() *op {
	if o := r.s.ops.list[r.id]; o.gen == r.gen {
		return o
	}
	return nil
}

// open reports whether the operation has not been ended by Wait or Test.
func (r Request) open() bool {
	if r.s == nil {
		return false
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.state() != nil
}

// Wait waits until the operation completes. If ctx ends first, the request stays open: cancel it, or
// wait again.
func (r Request) Wait(ctx context.Context) (Status, error) {
	out, err := r.wait(ctx)
	return out.Status, err
}

func (r Request) wait(ctx context.Context) (out outcome, err error) {
	if r.s == nil {
		return out, nil
	}
	var result error
	err = r.s.waitFor(ctx, func() (over bool) {
		over, result = r.endOrAwait(&out)
		return over
	})
	if err != nil {
		return out, r.describe(err)
	}
	return out, result
}

// Test reports whether the operation has completed, and ends the request if so.
func (r Request) Test() (st Status, over bool, err error) {
	if r.s == nil {
		return st, true, nil
	}
	var out outcome
	var result error
	over, err = r.s.pollOnce(func() (over bool) {
		out, over, result = r.end()
		if !over && r.s.ending { // counts as awaited: the next Test returns ErrClosed, and Close does not report it
			r.markAwaited()
		}
		return over
	})
	if err != nil {
		return st, false, r.describe(err)
	}
	return out.Status, over, result
}

// end finishes the operation if it is done. If another goroutine has finished it, end reports that it
// is over without a result.
func (r Request) end() (out outcome, over bool, err error) {
	o := r.state()
	if o == nil {
		return out, true, nil
	}
	if !o.done {
		return out, false, nil
	}
	out, err = r.s.finish(r.id, o)
	return out, true, err
}

// endOrAwait is end for a wait: if the operation is not done, it is marked as awaited. A wait that
// polls calls it every few nanoseconds; therefore it copies the outcome only if there is one.
func (r Request) endOrAwait(out *outcome) (over bool, err error) {
	if o := r.state(); o != nil && !o.done {
		o.awaited = true
		return false, nil
	}
	*out, over, err = r.end()
	return over, err
}

// markAllAwaited marks all operations as awaited: the calling goroutine waits for one after the
// other.
func markAllAwaited(requests []Request) {
	var s *Session
	for _, r := range requests {
		if r.s == nil {
			continue
		}
		if r.s != s {
			if s != nil {
				s.mu.Unlock()
			}
			s = r.s
			s.mu.Lock()
		}
		r.markAwaited()
	}
	if s != nil {
		s.mu.Unlock()
	}
}

// markAwaited notes that a goroutine will get the result of the operation (Close).
// Preconditions: the session's mutex is held.
func (r Request) markAwaited() {
	if o := r.state(); o != nil {
		o.awaited = true
	}
}

// describe returns the error of a wait with the operation's call, peer and tag.
func (r Request) describe(err error) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if o := r.state(); o != nil {
		return r.s.fail(o.what, o.comm, o.peer, o.tag, o.bytes, err)
	}
	return r.s.fail("wait", nil, AnySource, AnyTag, 0, err)
}

// Cancel requests the cancellation of a receive or send that has not been matched yet. Wait then
// returns ErrCancelled, or the operation's result if it was too late. If the sidecar has not taken what
// was submitted before, a later call submits the cancellation.
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
	o.cancelled = true
	if !r.s.closed && !r.s.gone.Load() && !r.s.hasRoom() {
		r.s.todo.cancels.push(r)
		return nil
	}
	if err := r.s.cancel(r); err != nil {
		return r.s.fail("cancel", o.comm, o.peer, o.tag, 0, err)
	}
	return nil
}

// cancel requests a cancellation from the engine, unless the operation has ended.
// Preconditions: s.mu is held, and the ring has room.
func (s *Session) cancel(r Request) error {
	if o := r.state(); o == nil || o.done {
		return nil
	}
	return s.push(&shm.Descriptor{Op: shm.OpCancel, Req: r.id})
}

// finish returns the result of an operation that is done, and frees it.
// Preconditions: s.mu is held.
func (s *Session) finish(id uint32, o *op) (outcome, error) {
	out := outcome{Status: Status{Source: o.peer, Tag: o.tag, Bytes: int(o.length)}, code: o.status, aux: o.aux, old: o.old}
	if o.receives && o.source != shm.AnySource {
		out.Source, out.Tag = o.comm.rankOf(o.source), int(o.rtag)
	}
	err := s.cause(o.status, o.length)
	if o.receives && (o.status == shm.StatusOK || o.status == shm.StatusTruncated) {
		err = cmp.Or(o.mistyped(), err)
	}
	if o.window != 0 && o.status == shm.StatusInvalid {
		err = o.misused()
	}
	if errors.Is(err, errOpen) {
		err = o.beyond()
	}
	if o.status == shm.StatusPeerLeft && o.peer == AnySource && !o.receives && o.aux > 0 { // a collective (LAYOUT §5.4)
		out.Source, err = o.comm.rankOf(uint32(o.aux-1)), o.leftEarly(err)
	}
	if err != nil {
		err = s.fail(o.what, o.comm, out.Source, out.Tag, o.bytes, err)
		if o.collective && o.status == shm.StatusPeerLeft && o.aux > 0 {
			s.lastError.record(s.control, uint32(o.aux), o.what)
		}
	} else {
		o.loan.copyOut(s.arenaMem)
	}
	s.drop(id, o)
	return out, err
}

// await waits for the request of a blocking call. If ctx ends first, the operation is cancelled. If
// the operation completes before its cancellation, its result is returned.
func (r Request) await(ctx context.Context) (outcome, error) {
	out, err := r.wait(ctx)
	if err == nil || ctx.Err() == nil || !r.open() {
		return out, err
	}
	if cancelErr := r.Cancel(); cancelErr != nil {
		return out, errors.Join(err, cancelErr)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	out, lastErr := r.wait(end)
	switch {
	case errors.Is(lastErr, ErrCancelled):
		return out, err
	case lastErr != nil && r.open():
		return out, errors.Join(err, r.abandon())
	}
	return out, lastErr
}

// awaitWhole waits for the request of a blocking call that cannot be cancelled. If ctx ends first, the
// operation continues without its caller.
func (r Request) awaitWhole(ctx context.Context) (outcome, error) {
	out, err := r.wait(ctx)
	if err != nil && ctx.Err() != nil && r.open() {
		err = errors.Join(err, r.abandon())
	}
	return out, err
}

// abandon detaches an operation whose caller has given up. The caller may use private memory
// again, but not memory of the arena that the engine may still use; the error reports that.
func (r Request) abandon() error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	o := r.state()
	switch {
	case o == nil:
		return nil
	case o.done:
		r.s.drop(r.id, o)
		return nil
	}
	o.detached, o.loan.out = true, nil
	if o.receives {
		o.buf = nil
		if !o.lent {
			o.uses = [2]span{}
		}
	} else {
		o.buf = slices.Clone(o.buf)
	}
	if o.lent {
		return fmt.Errorf("the %s continues: its memory stays in use until the sidecar has completed it", o.what)
	}
	return nil
}

// WaitAll waits for all requests and returns the first error.
func WaitAll(ctx context.Context, requests []Request) error {
	markAllAwaited(requests)
	var first error
	for _, r := range requests {
		if _, err := r.Wait(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// WaitAny waits until one of the requests ends, sets that element to the zero Request, and returns its
// index, or -1 if all are zero. All requests must be of one session.
func WaitAny(ctx context.Context, requests []Request) (int, Status, error) {
	var s *Session
	for _, r := range requests {
		if s != nil && r.s != nil && s != r.s {
			return -1, Status{}, s.fail("wait", nil, AnySource, AnyTag, 0, fmt.Errorf("%w: requests of two sessions", ErrInvalid))
		}
		if r.s != nil {
			s = r.s
		}
	}
	if s == nil {
		return -1, Status{}, nil
	}
	hit, out := -1, outcome{}
	var result error
	err := s.waitFor(ctx, func() (over bool) {
		for i, r := range requests {
			if r.s == nil {
				continue
			}
			if over, result = r.endOrAwait(&out); over {
				hit = i
				return true
			}
		}
		return false
	})
	if err != nil {
		return -1, Status{}, s.fail("wait", nil, AnySource, AnyTag, 0, err)
	}
	requests[hit] = Request{}
	return hit, out.Status, result
}
