package outrigger

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// packed returns the displacements of blocks that follow one another.
func packed(counts []int) []int {
	displs, next := make([]int, len(counts)), 0
	for i, n := range counts {
		displs[i] = next
		next += n
	}
	return displs
}

// sum returns the sum of counts, at most math.MaxInt. Negative counts are ignored here and rejected
// later.
func sum(counts []int) int {
	n := 0
	for _, c := range counts {
		n += min(max(c, 0), math.MaxInt-n)
	}
	return n
}

// blocks returns the two vectors of counts and displacements. If displs is nil, the blocks follow
// one another.
func (c *Comm) blocks(what string, counts, displs []int) ([][]int, error) {
	if err := c.want(what, len(counts), c.Size(), "counts"); err != nil {
		return nil, err
	}
	counts = counts[:c.Size()]
	if displs == nil {
		return [][]int{counts, packed(counts)}, nil
	}
	if err := c.want(what, len(displs), c.Size(), "displs"); err != nil {
		return nil, err
	}
	return [][]int{counts, displs[:c.Size()]}, nil
}

// fits checks that a buffer of n elements has the blocks of vectors. Negative counts are rejected
// later.
func (c *Comm) fits(what, of string, n int, vectors [][]int) error {
	for i, count := range vectors[0] {
		if at := vectors[1][i]; count > 0 && at >= 0 && (count > n || at > n-count) {
			return c.session.fail(what, c, AnySource, AnyTag, 0, fmt.Errorf("%w: the block of rank %d is %d elements from %d on, and %s has %d", ErrInvalid, i, count, at, of, n))
		}
	}
	return nil
}

// own checks the buffer of this rank's own block against its count.
func (c *Comm) own(what, of string, n int, counts []int) error {
	if n == counts[c.rank] {
		return nil
	}
	return c.session.fail(what, c, AnySource, AnyTag, 0, fmt.Errorf("%w: %s has %d elements, and counts[%d], of this rank, is %d", ErrInvalid, of, n, c.rank, counts[c.rank]))
}

// ownBlock returns this rank's block of a buffer that vectors divide.
func ownBlock[T Number](c *Comm, all []T, vectors [][]int) []T {
	return within(all, vectors[1][c.rank], vectors[0][c.rank])
}

// Gatherv is Gather with blocks of counts[i] elements, the length of in of rank i, at displs[i] of
// the root's out. If root and rank disagree about that length, the job fails; if the rank sends
// nothing and the root expects elements, the root waits, which `outrigger why` explains.
func Gatherv[T Number](ctx context.Context, c *Comm, in, out []T, counts, displs []int, root int) error {
	r, err := Igatherv(c, in, out, counts, displs, root)
	return r.collWait(ctx, err)
}

// Igatherv starts a Gatherv; its buffers are in use until the request has ended.
func Igatherv[T Number](c *Comm, in, out []T, counts, displs []int, root int) (Request, error) {
	x := collCall{what: "gatherv", kind: shm.CollGatherv, typ: typeCode[T](), elem: sizeOf[T](), root: root, count: len(in), in: bytesOf(in)}
	if c.rank == root {
		var err error
		if x.vectors, err = c.blocks("gatherv", counts, displs); err != nil {
			return Request{}, err
		}
		if err = cmp.Or(c.fits("gatherv", "out", len(out), x.vectors), c.own("gatherv", "in", len(in), x.vectors[0])); err != nil {
			return Request{}, err
		}
		x.out, x.inPlace = bytesOf(out), same(in, ownBlock(c, out, x.vectors))
	}
	return c.startColl(&x)
}

// Scatterv is Scatter with blocks of counts[i] elements, the length of out of rank i, at displs[i]
// of the root's in. If root and rank disagree about that length, the job fails; if the root sends
// nothing and the rank expects elements, the rank waits, which `outrigger why` explains.
func Scatterv[T Number](ctx context.Context, c *Comm, in []T, counts, displs []int, out []T, root int) error {
	r, err := Iscatterv(c, in, counts, displs, out, root)
	return r.collWait(ctx, err)
}

// Iscatterv starts a Scatterv; its buffers are in use until the request has ended.
func Iscatterv[T Number](c *Comm, in []T, counts, displs []int, out []T, root int) (Request, error) {
	x := collCall{what: "scatterv", kind: shm.CollScatterv, typ: typeCode[T](), elem: sizeOf[T](), root: root, count: len(out), out: bytesOf(out)}
	if c.rank == root {
		var err error
		if x.vectors, err = c.blocks("scatterv", counts, displs); err != nil {
			return Request{}, err
		}
		if err = cmp.Or(c.fits("scatterv", "in", len(in), x.vectors), c.own("scatterv", "out", len(out), x.vectors[0])); err != nil {
			return Request{}, err
		}
		x.in = bytesOf(in)
		if same(out, ownBlock(c, in, x.vectors)) {
			x.in, x.out, x.inPlace = nil, x.in, true
		}
	}
	return c.startColl(&x)
}

// Allgatherv is Allgather with blocks of counts[i] elements at displs[i] of out.
func Allgatherv[T Number](ctx context.Context, c *Comm, in, out []T, counts, displs []int) error {
	r, err := Iallgatherv(c, in, out, counts, displs)
	return r.collWait(ctx, err)
}

// Iallgatherv starts an Allgatherv; its buffers are in use until the request has ended.
func Iallgatherv[T Number](c *Comm, in, out []T, counts, displs []int) (Request, error) {
	v, err := c.blocks("allgatherv", counts, displs)
	if err == nil {
		err = cmp.Or(c.fits("allgatherv", "out", len(out), v), c.own("allgatherv", "in", len(in), v[0]))
	}
	if err != nil {
		return Request{}, err
	}
	return c.startColl(&collCall{what: "allgatherv", kind: shm.CollAllgatherv, typ: typeCode[T](), elem: sizeOf[T](), count: len(in), in: bytesOf(in), out: bytesOf(out), vectors: v, inPlace: same(in, ownBlock(c, out, v))})
}

// Alltoallv is Alltoall with blocks of any size at any displacement on both sides. If the block that
// one rank sends to another has not the length that the other one expects, the job fails and the
// error names both; if it sends nothing, the other one waits, which `outrigger why` explains.
func Alltoallv[T Number](ctx context.Context, c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) error {
	r, err := Ialltoallv(c, in, scounts, sdispls, out, rcounts, rdispls)
	return r.collWait(ctx, err)
}

// Ialltoallv starts an Alltoallv; its buffers are in use until the request has ended.
func Ialltoallv[T Number](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) (Request, error) {
	send, err := c.blocks("alltoallv", scounts, sdispls)
	if err != nil {
		return Request{}, err
	}
	recv, err := c.blocks("alltoallv", rcounts, rdispls)
	if err == nil {
		err = cmp.Or(c.fits("alltoallv", "in", len(in), send), c.fits("alltoallv", "out", len(out), recv))
	}
	if err != nil {
		return Request{}, err
	}
	return c.startColl(&collCall{what: "alltoallv", kind: shm.CollAlltoallv, typ: typeCode[T](), elem: sizeOf[T](), in: bytesOf(in), out: bytesOf(out), vectors: append(send, recv...)})
}
