package outrigger

import (
	"cmp"
	"context"
	"fmt"
)

// division is how a collective divides a buffer of elements into a block for each rank, at any offset.
type division struct{ counts, displs []int }

// divide checks and returns a division of a buffer. If displs is nil, the blocks follow one another.
func (t *Struct[T]) divide(c *Comm, what string, buf []T, counts, displs []int, of string) (division, error) {
	v, err := c.blocks(what, counts, displs)
	if err != nil {
		return division{}, err
	}
	d := division{v[0], v[1]}
	for i, n := range d.counts {
		if at := d.displs[i]; n < 0 || at < 0 || n > len(buf) || at > len(buf)-n {
			return d, c.session.fail(what, c, AnySource, AnyTag, 0, fmt.Errorf("%w: the block of rank %d is %d elements from %d on, and %s has %d", ErrInvalid, i, n, at, of, len(buf)))
		}
	}
	return d, nil
}

// inBytes returns the division in bytes of the memory that is sent: the buffer's own memory, or a
// copy in which the blocks follow one another.
func (t *Struct[T]) inBytes(d division) (counts, displs []int) {
	for _, n := range d.counts {
		counts = append(counts, n*t.packed)
	}
	if !t.dense() {
		return counts, packed(counts)
	}
	for _, at := range d.displs {
		displs = append(displs, at*t.size)
	}
	return counts, displs
}

// blocksOf returns the memory that is sent of a divided buffer.
func (t *Struct[T]) blocksOf(d division, buf []T) []byte {
	if t.dense() {
		return rawBytes(buf)
	}
	b := make([]byte, 0, sum(d.counts)*t.packed)
	for i, n := range d.counts {
		b = append(b, t.message(buf[d.displs[i]:d.displs[i]+n])...)
	}
	return b
}

// roomOf returns memory for the blocks that a divided buffer receives: its own memory, or a copy from
// which spread fills it.
func (t *Struct[T]) roomOf(d division, buf []T) []byte {
	if t.dense() {
		return rawBytes(buf)
	}
	return make([]byte, sum(d.counts)*t.packed)
}

func (t *Struct[T]) spread(d division, buf []T, b []byte) {
	if t.dense() {
		return
	}
	for i, n := range d.counts {
		t.unpack(buf[d.displs[i]:], b[:n*t.packed])
		b = b[n*t.packed:]
	}
}

// Gatherv is Gather with blocks of counts[i] elements at displs[i] of the root's out;
// displs nil: one behind the other.
func (t *Struct[T]) Gatherv(ctx context.Context, c *Comm, in, out []T, counts, displs []int, root int) error {
	if err := t.ready(c, "gatherv", in); err != nil {
		return err
	}
	if c.rank != root {
		return Gatherv(ctx, c, t.message(in), nil, nil, nil, root)
	}
	d, err := t.divide(c, "gatherv", out, counts, displs, "out")
	if err = cmp.Or(err, t.live(c, "gatherv", out, AnySource, AnyTag)); err != nil {
		return err
	}
	b := t.roomOf(d, out)
	n, at := t.inBytes(d)
	if err := Gatherv(ctx, c, t.message(in), b, n, at, root); err != nil {
		return err
	}
	t.spread(d, out, b)
	return nil
}

// Scatterv is Scatter with blocks of counts[i] elements at displs[i] of the root's in;
// displs nil: one behind the other.
func (t *Struct[T]) Scatterv(ctx context.Context, c *Comm, in []T, counts, displs []int, out []T, root int) error {
	if err := t.ready(c, "scatterv", out); err != nil {
		return err
	}
	var all []byte
	var n, at []int
	if c.rank == root {
		d, err := t.divide(c, "scatterv", in, counts, displs, "in")
		if err = cmp.Or(err, t.live(c, "scatterv", in, AnySource, AnyTag)); err != nil {
			return err
		}
		all = t.blocksOf(d, in)
		n, at = t.inBytes(d)
	}
	b := t.room(out)
	if err := Scatterv(ctx, c, all, n, at, b, root); err != nil {
		return err
	}
	t.settle(out, b)
	return nil
}

// Allgatherv is Allgather with blocks of counts[i] elements at displs[i] of out;
// displs nil: one behind the other.
func (t *Struct[T]) Allgatherv(ctx context.Context, c *Comm, in, out []T, counts, displs []int) error {
	if err := t.ready(c, "allgatherv", in, out); err != nil {
		return err
	}
	d, err := t.divide(c, "allgatherv", out, counts, displs, "out")
	if err != nil {
		return err
	}
	b := t.roomOf(d, out)
	n, at := t.inBytes(d)
	if err := Allgatherv(ctx, c, t.message(in), b, n, at); err != nil {
		return err
	}
	t.spread(d, out, b)
	return nil
}

// Alltoall sends block i of in to rank i, where it becomes the block of this rank in out. in and out
// have the same number of elements, a multiple of the number of ranks, and must not overlap.
func (t *Struct[T]) Alltoall(ctx context.Context, c *Comm, in, out []T) error {
	if err := t.ready(c, "alltoall", in, out); err != nil {
		return err
	}
	if err := c.want("alltoall", len(out), len(in), "out"); err != nil {
		return err
	}
	if len(in)%c.Size() != 0 {
		return c.session.fail("alltoall", c, AnySource, AnyTag, 0, fmt.Errorf("%w: in has %d elements for %d ranks", ErrInvalid, len(in), c.Size()))
	}
	out = out[:len(in)]
	b := t.room(out)
	if err := Alltoall(ctx, c, t.message(in), b); err != nil {
		return err
	}
	t.settle(out, b)
	return nil
}

// Alltoallv is Alltoall with blocks of any size at any displacement on both sides: scounts[i] elements
// at sdispls[i] of in are sent to rank i, and rcounts[i] at rdispls[i] of out are received from it. If
// displacements are nil, the blocks follow one another.
func (t *Struct[T]) Alltoallv(ctx context.Context, c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) error {
	if err := t.ready(c, "alltoallv", in, out); err != nil {
		return err
	}
	send, err := t.divide(c, "alltoallv", in, scounts, sdispls, "in")
	if err != nil {
		return err
	}
	recv, err := t.divide(c, "alltoallv", out, rcounts, rdispls, "out")
	if err != nil {
		return err
	}
	b := t.roomOf(recv, out)
	sn, sat := t.inBytes(send)
	rn, rat := t.inBytes(recv)
	if err := Alltoallv(ctx, c, t.blocksOf(send, in), sn, sat, b, rn, rat); err != nil {
		return err
	}
	t.spread(recv, out, b)
	return nil
}
