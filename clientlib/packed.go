package outrigger

import (
	"context"
	"errors"
	"fmt"
)

// Messages whose elements do not lie behind each other. The engine has no gather of
// its own yet: the library packs the elements, once, into the memory that it shares
// with the sidecar (of Go's where the arena is used up), from where they are sent. A
// receiver unpacks them there.

// shared is memory for n elements that are sent or received: of the arena, or of
// Go's if that is used up.
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
		return err // it goes on by itself, from the arena's memory
	}
	return errors.Join(err, free())
}

// PackedRequest is a receive whose elements Wait puts where they belong. WaitAll and
// WaitAny do not: give them no Request of it (WaitAllPacked).
type PackedRequest struct {
	Request
	unpack func(Status) error // nil: there is nothing to unpack
	free   func() error
}

// Wait waits for the message and puts its elements where they belong. Wait, or Test
// that reports true, is called once, by who started the receive.
func (r *PackedRequest) Wait(ctx context.Context) (Status, error) {
	if r.unpack == nil {
		return nothing, nil
	}
	st, err := r.Request.Wait(ctx)
	return r.end(st, err)
}

// WaitAllPacked waits for all requests, each as its Wait does, and returns the first
// error. Nil is no request.
func WaitAllPacked(ctx context.Context, requests []*PackedRequest) error {
	plain := make([]Request, len(requests))
	for i, r := range requests {
		if r != nil {
			plain[i] = r.Request
		}
	}
	attendAll(plain)
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

// Test reports whether the receive has ended, and does what Wait does if so.
func (r *PackedRequest) Test() (st Status, over bool, err error) {
	if r.unpack == nil {
		return nothing, true, nil
	}
	if st, over, err = r.Request.Test(); over {
		st, err = r.end(st, err)
	}
	return st, over, err
}

// await is Wait of a blocking call: when ctx ends, the receive is taken back.
func (r *PackedRequest) await(ctx context.Context) (Status, error) {
	if r.unpack == nil {
		return nothing, nil
	}
	out, err := r.Request.await(ctx)
	return r.end(out.Status, err)
}

// nothing is received from nobody.
var nothing = Status{Source: NullRank, Tag: AnyTag}

// end unpacks the message, unless there is none, and gives the memory back, unless
// the receive goes on.
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

// irecvPacked starts a receive of at most n elements, of which elem bytes belong
// together. unpack gets those that have come.
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

// whole refuses a message that is no whole number of elements.
func (c *Comm) whole(st Status, elem, room int) error {
	if st.Bytes%elem == 0 {
		return nil
	}
	return c.session.fail("recv", c, st.Source, st.Tag, room, fmt.Errorf("%w: a message of %d bytes is no whole number of elements of %d: its sender has another type", ErrInvalid, st.Bytes, elem))
}
