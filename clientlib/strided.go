package outrigger

import (
	"context"
	"errors"
	"fmt"
)

// Layout is which elements of a slice a message is made of: Count blocks of Block
// elements, whose beginnings are Stride elements apart (MPI_Type_vector), behind
// each other in the message. A column of a row-major matrix of n columns is
// Layout{Count: rows, Block: 1, Stride: n}.
//
// The engine has no gather of its own yet: the library packs the elements, once,
// into the memory that it shares with the sidecar, from where they are sent.
type Layout struct{ Count, Block, Stride int }

// Len is the number of elements.
func (l Layout) Len() int { return l.Count * l.Block }

func (l Layout) check(have int) error {
	last := (l.Count-1)*l.Stride + l.Block
	if l.Count < 1 || l.Block < 1 || l.Stride < l.Block && l.Count > 1 || last > have {
		return fmt.Errorf("%w: %d blocks of %d elements, %d apart, in a slice of %d", ErrInvalid, l.Count, l.Block, l.Stride, have)
	}
	return nil
}

// shared is memory for n elements that are sent or received: of the arena, or of
// Go's if that is used up.
func shared[T Number](s *Session, n int) (b []T, free func() error) {
	if b, err := Alloc[T](s, n); err == nil {
		return b, func() error { return Free(s, b) }
	}
	return make([]T, n), func() error { return nil }
}

// SendStrided sends the elements of buf that l names.
func SendStrided[T Number](ctx context.Context, c *Comm, buf []T, l Layout, dst, tag int) error {
	if err := l.check(len(buf)); err != nil || dst == NullRank {
		return err
	}
	b, free := shared[T](c.session, l.Len())
	for i := range l.Count {
		copy(b[i*l.Block:(i+1)*l.Block], buf[i*l.Stride:])
	}
	r, err := c.startSend(ctx, "send", bytesOf(b), dst, tag, sendBuffered)
	if err == nil {
		_, err = r.await(ctx)
	}
	if r.open() {
		return err // it goes on by itself, from the arena's memory
	}
	return errors.Join(err, free())
}

// StridedRequest is a receive that IrecvStrided has started.
type StridedRequest struct {
	Request
	unpack func(Status) // nil: there is nothing to unpack
	free   func() error
}

// Wait waits for the message and puts its elements where they belong. Wait, or Test
// that reports true, is called once, by who started the receive.
func (r *StridedRequest) Wait(ctx context.Context) (Status, error) {
	if r.unpack == nil {
		return nothing, nil
	}
	st, err := r.Request.Wait(ctx)
	return r.end(st, err)
}

// Test reports whether the receive has ended, and does what Wait does if so.
func (r *StridedRequest) Test() (st Status, over bool, err error) {
	if r.unpack == nil {
		return nothing, true, nil
	}
	if st, over, err = r.Request.Test(); over {
		st, err = r.end(st, err)
	}
	return st, over, err
}

// nothing is received from nobody.
var nothing = Status{Source: NullRank, Tag: AnyTag}

// end unpacks the message, unless there is none, and gives the memory back, unless
// the receive goes on.
func (r *StridedRequest) end(st Status, err error) (Status, error) {
	if r.open() {
		return st, err
	}
	if err == nil {
		r.unpack(st)
	}
	r.unpack = nil
	return st, errors.Join(err, r.free())
}

// IrecvStrided starts a receive into the elements of buf that l names. They are
// written by Wait. A shorter message fills the first of them.
func IrecvStrided[T Number](c *Comm, buf []T, l Layout, src, tag int) (*StridedRequest, error) {
	if err := l.check(len(buf)); err != nil {
		return nil, err
	}
	if src == NullRank {
		return new(StridedRequest), nil
	}
	b, free := shared[T](c.session, l.Len())
	r, err := Irecv(c, b, src, tag)
	if err != nil {
		return nil, errors.Join(err, free())
	}
	return &StridedRequest{r, func(st Status) {
		n := st.Bytes / sizeOf[T]()
		for i := 0; i*l.Block < n; i++ {
			copy(buf[i*l.Stride:], b[i*l.Block:min((i+1)*l.Block, n)])
		}
	}, free}, nil
}

// RecvStrided receives a message into the elements of buf that l names.
func RecvStrided[T Number](ctx context.Context, c *Comm, buf []T, l Layout, src, tag int) (Status, error) {
	r, err := IrecvStrided(c, buf, l, src, tag)
	if err != nil {
		return Status{}, err
	}
	return r.Wait(ctx)
}
