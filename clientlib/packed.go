package outrigger

import (
	"context"
	"errors"
	"fmt"
)

// Messages whose elements are not contiguous. The engine has no gather of its own. Therefore the
// library packs the elements once into memory that it shares with the sidecar (or into Go memory if
// the arena is used up), from where they are sent. A receiver unpacks them from such memory.

// shared allocates memory for n elements that are sent or received: in the arena, or Go memory if
// the arena is used up.
func shared[T Number](s *Session, n int) (b []T, free func() error) {
	if b, err := Alloc[T](s, n); err == nil {
		return b, func() error { return s.returnBytes(bytesOf(b)) }
	}
	return make([]T, n), func() error { return nil }
}

// sendPacked sends the n elements that pack writes.
func sendPacked[T Number](ctx context.Context, c *Comm, n int, pack func([]T), dst, tag int) error {
	b, free := shared[T](c.session, n)
	pack(b)
	r, err := c.startSend(ctx, "send", elementsOf(b), dst, tag, sendBuffered)
	if err == nil {
		_, err = r.await(ctx)
	}
	if r.open() {
		return err // the send is still open and reads b: b is not freed
	}
	return errors.Join(err, free())
}

// PackedRequest is a receive whose elements Wait unpacks. WaitAll and WaitAny do not unpack: use
// WaitAllPacked, and do not pass them the Request.
type PackedRequest struct {
	Request
	unpack func(Status) error // nil: there is nothing to unpack
	free   func() error
}

// Wait waits for the message and unpacks its elements. Wait, or Test that reports true, must be
// called once, by the goroutine that started the receive.
func (r *PackedRequest) Wait(ctx context.Context) (Status, error) {
	if r.unpack == nil {
		return nothing, nil
	}
	st, err := r.Request.Wait(ctx)
	return r.end(st, err)
}

// WaitAllPacked calls Wait for all requests that are not nil, and returns the first error.
func WaitAllPacked(ctx context.Context, requests []*PackedRequest) error {
	plain := make([]Request, len(requests))
	for i, r := range requests {
		if r != nil {
			plain[i] = r.Request
		}
	}
	markAllAwaited(plain)
	var first error
	for _, r := range requests {
		if r == nil {
			continue
		}
		if _, err := r.Wait(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Test reports whether the receive has completed; if so, it does the same as Wait.
func (r *PackedRequest) Test() (st Status, over bool, err error) {
	if r.unpack == nil {
		return nothing, true, nil
	}
	if st, over, err = r.Request.Test(); over {
		st, err = r.end(st, err)
	}
	return st, over, err
}

// await is Wait of a blocking call: if ctx ends, it cancels the receive.
func (r *PackedRequest) await(ctx context.Context) (Status, error) {
	if r.unpack == nil {
		return nothing, nil
	}
	out, err := r.Request.await(ctx)
	return r.end(out.Status, err)
}

// nothing is the status of a receive from NullRank.
var nothing = Status{Source: NullRank, Tag: AnyTag}

// end unpacks the message, if there is one, and frees the memory, unless the receive is still open.
func (r *PackedRequest) end(st Status, err error) (Status, error) {
	if r.open() {
		return st, err
	}
	if err == nil {
		err = r.unpack(st)
	}
	r.unpack = nil
	return st, errors.Join(err, r.free())
}

// irecvPacked starts a receive of at most n elements. The length of the message must be a multiple of
// elem bytes. unpack is called with the elements that were received.
func irecvPacked[T Number](c *Comm, n, elem int, unpack func([]T), src, tag int) (*PackedRequest, error) {
	if src == NullRank {
		return new(PackedRequest), nil
	}
	b, free := shared[T](c.session, n)
	r, err := Irecv(c, b, src, tag)
	if err != nil {
		return nil, errors.Join(err, free())
	}
	return &PackedRequest{r, func(st Status) error {
		if err := c.whole(st, elem, len(b)*sizeOf[T]()); err != nil {
			return err
		}
		unpack(b[:st.Bytes/sizeOf[T]()])
		return nil
	}, free}, nil
}

// whole returns an error if the length of a message is no multiple of the size of an element.
func (c *Comm) whole(st Status, elem, room int) error {
	if st.Bytes%elem == 0 {
		return nil
	}
	return c.session.fail("recv", c, st.Source, st.Tag, room, fmt.Errorf("%w: a message of %d bytes is no whole number of elements of %d: its sender has another type", ErrInvalid, st.Bytes, elem))
}
