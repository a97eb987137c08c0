package outrigger

import (
	"cmp"
	"context"
	"fmt"
)

// Layout selects the elements of a slice that form a message: Count blocks of Block elements, whose
// beginnings are Stride elements apart (MPI_Type_vector). A column of a row-major matrix of n columns
// is Layout{Count: rows, Block: 1, Stride: n}. The library copies the elements once into memory that
// it shares with the sidecar, and once out of it.
type Layout struct{ Count, Block, Stride int }

// Len returns the number of elements.
func (l Layout) Len() int { return l.Count * l.Block }

func (l Layout) check(have int) error {
	if l.Count < 1 || l.Block < 1 || l.Stride < l.Block && l.Count > 1 || !l.fits(have) {
		return fmt.Errorf("%w: %d blocks of %d elements, %d apart, in a slice of %d", ErrInvalid, l.Count, l.Block, l.Stride, have)
	}
	return nil
}

// fits reports whether the last block ends within the slice. It computes no product, which could
// overflow.
func (l Layout) fits(have int) bool {
	return l.Block <= have && (l.Count == 1 || (l.Count-1) <= (have-l.Block)/l.Stride)
}

// SendStrided sends the elements of buf that l selects.
func SendStrided[T Number](ctx context.Context, c *Comm, buf []T, l Layout, dst, tag int) error {
	if err := cmp.Or(l.check(len(buf)), c.session.live(bytesOf(buf))); err != nil {
		return c.session.fail("send", c, dst, tag, 0, err)
	}
	if dst == NullRank {
		return nil
	}
	return sendPacked(ctx, c, l.Len(), func(b []T) {
		for i := range l.Count {
			copy(b[i*l.Block:(i+1)*l.Block], buf[i*l.Stride:])
		}
	}, dst, tag)
}

// IrecvStrided starts a receive into the elements of buf that l selects. Wait writes them. A shorter
// message fills the first of them.
func IrecvStrided[T Number](c *Comm, buf []T, l Layout, src, tag int) (*PackedRequest, error) {
	if err := cmp.Or(l.check(len(buf)), c.session.live(bytesOf(buf))); err != nil {
		return nil, c.session.fail("recv", c, src, tag, 0, err)
	}
	return irecvPacked(c, l.Len(), sizeOf[T](), func(b []T) {
		for i := 0; len(b) > 0; i++ {
			b = b[copy(buf[i*l.Stride:i*l.Stride+l.Block], b):]
		}
	}, src, tag)
}

// RecvStrided receives a message into the elements of buf that l selects.
func RecvStrided[T Number](ctx context.Context, c *Comm, buf []T, l Layout, src, tag int) (Status, error) {
	r, err := IrecvStrided(c, buf, l, src, tag)
	if err != nil {
		return Status{}, err
	}
	return r.await(ctx)
}

// SendrecvStrided sends the elements of sbuf that sl selects and at the same time receives into those
// of rbuf that rl selects: an edge is sent to one neighbour while the halo is received from the other.
// Both may be of one slice, if no element is selected twice.
func SendrecvStrided[T Number](ctx context.Context, c *Comm, sbuf []T, sl Layout, dst, stag int, rbuf []T, rl Layout, src, rtag int) (Status, error) {
	in, err := IrecvStrided(c, rbuf, rl, src, rtag)
	if err != nil {
		return Status{}, err
	}
	if err := SendStrided(ctx, c, sbuf, sl, dst, stag); err != nil {
		over, cancel := context.WithCancel(ctx)
		cancel()
		_, _ = in.await(over) // cancels the receive; the first error is returned
		return Status{}, err
	}
	return in.await(ctx)
}
