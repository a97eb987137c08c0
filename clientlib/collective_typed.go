package outrigger

import (
	"context"
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Barrier returns when every rank has called it.
func (c *Comm) Barrier(ctx context.Context) error {
	r, err := c.Ibarrier()
	return r.collWait(ctx, err)
}

// Ibarrier starts a Barrier.
func (c *Comm) Ibarrier() (Request, error) {
	return c.startColl(&collCall{what: "barrier", kind: shm.CollBarrier})
}

// fence is a Barrier of a window. If another rank fences another window, it is an error.
func (c *Comm) fence(ctx context.Context, window uint32) error {
	r, err := c.startColl(&collCall{what: "fence", kind: shm.CollBarrier, window: window})
	return r.collWait(ctx, err)
}

// same reports whether two operands begin at the same element: then the collective is in place
// (collective_inplace.go).
func same[T Number](a, b []T) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// within returns the n elements from at on in a buffer of all ranks' blocks, or nil if the buffer
// does not have them.
func within[T Number](all []T, at, n int) []T {
	if at < 0 || n < 0 || at > len(all)-n {
		return nil
	}
	return all[at : at+n]
}

// want returns an error if a buffer has fewer elements than a collective needs.
func (c *Comm) want(what string, have, need int, of string) error {
	if have >= need {
		return nil
	}
	return c.session.fail(what, c, AnySource, AnyTag, 0, fmt.Errorf("%w: %s has %d elements, %d are needed", ErrInvalid, of, have, need))
}

// Bcast sends the root's buf to every rank's buf.
func Bcast[T Number](ctx context.Context, c *Comm, buf []T, root int) error {
	r, err := Ibcast(c, buf, root)
	return r.collWait(ctx, err)
}

// Ibcast starts a Bcast; its buffers are in use until the request has ended.
func Ibcast[T Number](c *Comm, buf []T, root int) (Request, error) {
	return c.startColl(&collCall{what: "bcast", kind: shm.CollBcast, typ: typeCode[T](), elem: sizeOf[T](), root: root, count: len(buf), out: bytesOf(buf)})
}

// Reduce combines in of every rank, element by element, into out of the root, where
// they may be the same slice.
func Reduce[T Number](ctx context.Context, c *Comm, in, out []T, op Op, root int) error {
	r, err := Ireduce(c, in, out, op, root)
	return r.collWait(ctx, err)
}

// Ireduce starts a Reduce; its buffers are in use until the request has ended.
func Ireduce[T Number](c *Comm, in, out []T, op Op, root int) (Request, error) {
	if c.rank != root {
		out = nil
	} else if err := c.want("reduce", len(out), len(in), "out"); err != nil {
		return Request{}, err
	}
	return c.startColl(&collCall{what: "reduce", kind: shm.CollReduce, typ: typeCode[T](), elem: sizeOf[T](), op: op, root: root, count: len(in), in: bytesOf(in), out: bytesOf(out), inPlace: same(in, out)})
}

// Allreduce combines in of every rank into out of every rank. They may be the same slice.
func Allreduce[T Number](ctx context.Context, c *Comm, in, out []T, op Op) error {
	r, err := Iallreduce(c, in, out, op)
	return r.collWait(ctx, err)
}

// Iallreduce starts an Allreduce; its buffers are in use until the request has ended.
func Iallreduce[T Number](c *Comm, in, out []T, op Op) (Request, error) {
	if err := c.want("allreduce", len(out), len(in), "out"); err != nil {
		return Request{}, err
	}
	return c.startColl(&collCall{what: "allreduce", kind: shm.CollAllreduce, typ: typeCode[T](), elem: sizeOf[T](), op: op, count: len(in), in: bytesOf(in), out: bytesOf(out[:len(in)]), inPlace: same(in, out)})
}

// Scan combines in of ranks 0 to this one into out. They may be the same slice.
func Scan[T Number](ctx context.Context, c *Comm, in, out []T, op Op) error {
	r, err := Iscan(c, in, out, op)
	return r.collWait(ctx, err)
}

// Iscan starts a Scan; its buffers are in use until the request has ended.
func Iscan[T Number](c *Comm, in, out []T, op Op) (Request, error) {
	if err := c.want("scan", len(out), len(in), "out"); err != nil {
		return Request{}, err
	}
	return c.startColl(&collCall{what: "scan", kind: shm.CollScan, typ: typeCode[T](), elem: sizeOf[T](), op: op, count: len(in), in: bytesOf(in), out: bytesOf(out[:len(in)]), inPlace: same(in, out)})
}

// ReduceScatter combines in of every rank and gives rank i its block, counts[i] elements. If counts
// is nil, all blocks have len(out) elements. out may be the beginning of in; the rest of in is then
// undefined.
func ReduceScatter[T Number](ctx context.Context, c *Comm, in, out []T, counts []int, op Op) error {
	r, err := IreduceScatter(c, in, out, counts, op)
	return r.collWait(ctx, err)
}

// IreduceScatter starts a ReduceScatter; its buffers are in use until the request has ended.
func IreduceScatter[T Number](c *Comm, in, out []T, counts []int, op Op) (Request, error) {
	x := collCall{what: "reduce-scatter", kind: shm.CollReduceScatter, typ: typeCode[T](), elem: sizeOf[T](), op: op, count: len(out), in: bytesOf(in), out: bytesOf(out)}
	need, own := len(out)*c.Size(), len(out)
	if counts != nil {
		if err := c.want("reduce-scatter", len(counts), c.Size(), "counts"); err != nil {
			return Request{}, err
		}
		counts = counts[:c.Size()]
		need, own = sum(counts), counts[c.rank]
		x.vectors = [][]int{counts, packed(counts)}
	}
	if err := errors.Join(c.want("reduce-scatter", len(in), need, "in"), c.want("reduce-scatter", len(out), own, "out")); err != nil {
		return Request{}, err
	}
	if same(in, out) {
		x.in, x.out, x.inPlace = nil, bytesOf(in[:max(need, own)]), true
	}
	return c.startColl(&x)
}

// Gather collects in of every rank, in rank order, in out of the root. There, in may
// be its block of out.
func Gather[T Number](ctx context.Context, c *Comm, in, out []T, root int) error {
	r, err := Igather(c, in, out, root)
	return r.collWait(ctx, err)
}

// Igather starts a Gather; its buffers are in use until the request has ended.
func Igather[T Number](c *Comm, in, out []T, root int) (Request, error) {
	if c.rank != root {
		out = nil
	} else if err := c.want("gather", len(out), len(in)*c.Size(), "out"); err != nil {
		return Request{}, err
	}
	return c.startColl(&collCall{what: "gather", kind: shm.CollGather, typ: typeCode[T](), elem: sizeOf[T](), root: root, count: len(in), in: bytesOf(in), out: bytesOf(out), inPlace: same(in, within(out, c.rank*len(in), len(in)))})
}

// Scatter sends block i of the root's in to out of rank i. At the root, out may be its
// block of in.
func Scatter[T Number](ctx context.Context, c *Comm, in, out []T, root int) error {
	r, err := Iscatter(c, in, out, root)
	return r.collWait(ctx, err)
}

// Iscatter starts a Scatter; its buffers are in use until the request has ended.
func Iscatter[T Number](c *Comm, in, out []T, root int) (Request, error) {
	if c.rank != root {
		in = nil
	} else if err := c.want("scatter", len(in), len(out)*c.Size(), "in"); err != nil {
		return Request{}, err
	}
	x := collCall{what: "scatter", kind: shm.CollScatter, typ: typeCode[T](), elem: sizeOf[T](), root: root, count: len(out), in: bytesOf(in), out: bytesOf(out)}
	if same(out, within(in, c.rank*len(out), len(out))) {
		x.in, x.out, x.inPlace = nil, x.in, true
	}
	return c.startColl(&x)
}

// Allgather collects in of every rank, in rank order, in out of every rank. in may be
// the rank's block of out.
func Allgather[T Number](ctx context.Context, c *Comm, in, out []T) error {
	r, err := Iallgather(c, in, out)
	return r.collWait(ctx, err)
}

// Iallgather starts an Allgather; its buffers are in use until the request has ended.
func Iallgather[T Number](c *Comm, in, out []T) (Request, error) {
	if err := c.want("allgather", len(out), len(in)*c.Size(), "out"); err != nil {
		return Request{}, err
	}
	return c.startColl(&collCall{what: "allgather", kind: shm.CollAllgather, typ: typeCode[T](), elem: sizeOf[T](), count: len(in), in: bytesOf(in), out: bytesOf(out), inPlace: same(in, within(out, c.rank*len(in), len(in)))})
}

// Alltoall sends block i of in to rank i, and receives its block into block i of out.
// They do not overlap.
func Alltoall[T Number](ctx context.Context, c *Comm, in, out []T) error {
	r, err := Ialltoall(c, in, out)
	return r.collWait(ctx, err)
}

// Ialltoall starts an Alltoall; its buffers are in use until the request has ended.
func Ialltoall[T Number](c *Comm, in, out []T) (Request, error) {
	if len(in)%c.Size() != 0 {
		return Request{}, c.session.fail("alltoall", c, AnySource, AnyTag, 0, fmt.Errorf("%w: %d elements for %d ranks", ErrInvalid, len(in), c.Size()))
	}
	if err := c.want("alltoall", len(out), len(in), "out"); err != nil {
		return Request{}, err
	}
	if c.Size() > 1 && overlap(bytesOf(in), bytesOf(out[:len(in)])) {
		return Request{}, c.session.fail("alltoall", c, AnySource, AnyTag, 0, fmt.Errorf("%w: in and out share memory, and received blocks would overwrite blocks that are not sent yet; pass slices.Clone(buf) as in", ErrInvalid))
	}
	return c.startColl(&collCall{what: "alltoall", kind: shm.CollAlltoall, typ: typeCode[T](), elem: sizeOf[T](), count: len(in) / c.Size(), in: bytesOf(in), out: bytesOf(out)})
}
