package outrigger

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
)

// Struct sends and receives slices of a type T that consists of numbers: a struct whose fields are
// numbers, or arrays or structs of them (MPI_Type_create_struct). It is created once by StructOf, has
// no resources, and may be used by all goroutines.
//
// A message has the fields in their order, without the padding between them. A type without padding
// is sent from its memory, without a copy if that is from Struct.Alloc. For a type with padding the
// library makes a packed copy on both sides; a struct with its fields ordered by size, largest first,
// has least padding. Both sides must have the same fields; their padding may differ. Reductions are
// only for numbers.
type Struct[T any] struct {
	size   int // bytes of an element in memory
	packed int // bytes of an element in a message
	runs   []run
}

// StructOf checks T and returns a Struct. If a field is no number, it returns an ErrInvalid that names
// the field.
func StructOf[T any]() (*Struct[T], error) {
	typ := reflect.TypeFor[T]()
	runs, err := runsOf(typ, typ.String())
	if err == nil && len(runs) == 0 {
		err = fmt.Errorf("%w: %s has nothing in it to send", ErrInvalid, typ)
	}
	if err != nil {
		return nil, fmt.Errorf("outrigger: struct: %w", err)
	}
	t := &Struct[T]{size: int(typ.Size()), runs: runs}
	for _, r := range runs {
		t.packed += r.n
	}
	return t, nil
}

// Size returns the number of bytes of an element in a message.
func (t *Struct[T]) Size() int { return t.packed }

// Count returns the number of elements of a message.
func (t *Struct[T]) Count(st Status) int { return st.Bytes / t.packed }

// dense reports whether the type has no padding, so that elements are sent from their memory.
func (t *Struct[T]) dense() bool { return t.packed == t.size }

// ready returns an error for a Struct that StructOf has not created, and for buffers that were freed.
func (t *Struct[T]) ready(c *Comm, what string, bufs ...[]T) error {
	if t.packed == 0 {
		return c.session.fail(what, c, AnySource, AnyTag, 0, fmt.Errorf("%w: a Struct that StructOf has not made", ErrInvalid))
	}
	for _, b := range bufs {
		if err := t.live(c, what, b, AnySource, AnyTag); err != nil {
			return err
		}
	}
	return nil
}

// live returns an error for freed memory that would be copied. For a dense type the send or receive
// checks the memory itself.
func (t *Struct[T]) live(c *Comm, what string, buf []T, peer, tag int) error {
	if t.dense() {
		return nil
	}
	if err := c.session.live(rawBytes(buf)); err != nil {
		return c.session.fail(what, c, peer, tag, len(buf)*t.packed, err)
	}
	return nil
}

// pack copies the fields of elements, without padding, to b.
func (t *Struct[T]) pack(b []byte, buf []T) {
	for mem := rawBytes(buf); len(mem) > 0; mem = mem[t.size:] {
		for _, r := range t.runs {
			b = b[copy(b, mem[r.at:r.at+r.n]):]
		}
	}
}

// unpack copies b, which has a whole number of packed elements, to the first elements of buf.
func (t *Struct[T]) unpack(buf []T, b []byte) {
	for mem := rawBytes(buf); len(b) > 0; mem = mem[t.size:] {
		for _, r := range t.runs {
			b = b[copy(mem[r.at:r.at+r.n], b):]
		}
	}
}

// message returns the bytes that are sent of elements: their own memory, or a packed copy.
func (t *Struct[T]) message(buf []T) []byte {
	if t.dense() {
		return rawBytes(buf)
	}
	b := make([]byte, len(buf)*t.packed)
	t.pack(b, buf)
	return b
}

// room returns memory for a message that fills buf: its own memory, or a copy from which settle
// fills it.
func (t *Struct[T]) room(buf []T) []byte {
	if t.dense() {
		return rawBytes(buf)
	}
	return make([]byte, len(buf)*t.packed)
}

func (t *Struct[T]) settle(buf []T, b []byte) {
	if !t.dense() {
		t.unpack(buf, b)
	}
}

// Alloc returns n zeroed elements of memory that is shared with the sidecar.
func (t *Struct[T]) Alloc(s *Session, n int) ([]T, error) {
	if err := t.ready(s.world, "alloc"); err != nil {
		return nil, err
	}
	if n > math.MaxInt/t.size {
		return nil, s.fail("alloc", s.world, AnySource, AnyTag, 0, fmt.Errorf("%w: %d elements of %d bytes", ErrNoMemory, n, t.size))
	}
	mem, err := Alloc[byte](s, n*t.size)
	if err != nil {
		return nil, err
	}
	return sliceOf[T](mem, max(n, 0)), nil
}

// Free frees memory from Alloc. No operation may use it.
func (t *Struct[T]) Free(s *Session, b []T) error { return Free(s, rawBytes(b)) }

// Send sends buf and returns when it may be changed again.
func (t *Struct[T]) Send(ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	if err := t.ready(c, "send"); err != nil || dst == NullRank {
		return err
	}
	if t.dense() {
		return Send(ctx, c, rawBytes(buf), dst, tag)
	}
	if err := t.live(c, "send", buf, dst, tag); err != nil {
		return err
	}
	return sendPacked(ctx, c, len(buf)*t.packed, func(b []byte) { t.pack(b, buf) }, dst, tag)
}

// Isend starts sending buf, which must not change until the request has ended.
func (t *Struct[T]) Isend(c *Comm, buf []T, dst, tag int) (Request, error) {
	if err := t.ready(c, "isend"); err != nil || dst == NullRank {
		return Request{}, err
	}
	if err := t.live(c, "isend", buf, dst, tag); err != nil {
		return Request{}, err
	}
	return c.startSend(context.Background(), "isend", raw(t.message(buf)), dst, tag, sendPlain)
}

// Recv receives a message of at most len(buf) elements. If its length is no multiple of the size of an
// element, it returns an ErrInvalid: the sender has another type.
func (t *Struct[T]) Recv(ctx context.Context, c *Comm, buf []T, src, tag int) (Status, error) {
	if err := t.ready(c, "recv"); err != nil {
		return Status{}, err
	}
	if t.dense() {
		return recvElements(ctx, c, raw(rawBytes(buf)), t.packed, src, tag)
	}
	r, err := t.Irecv(c, buf, src, tag)
	if err != nil {
		return Status{}, err
	}
	return r.await(ctx)
}

// Irecv starts a receive. buf has the message when Wait of the request has returned.
func (t *Struct[T]) Irecv(c *Comm, buf []T, src, tag int) (*PackedRequest, error) {
	if err := t.ready(c, "irecv"); err != nil {
		return nil, err
	}
	if !t.dense() {
		if err := t.live(c, "irecv", buf, src, tag); err != nil {
			return nil, err
		}
		return irecvPacked(c, len(buf)*t.packed, t.packed, func(b []byte) { t.unpack(buf, b) }, src, tag)
	}
	if src == NullRank {
		return new(PackedRequest), nil
	}
	b := rawBytes(buf)
	r, err := Irecv(c, b, src, tag)
	if err != nil {
		return nil, err
	}
	return &PackedRequest{r, func(st Status) error { return c.whole(st, t.packed, len(b)) }, func() error { return nil }}, nil
}

// Bcast sends the root's buf to every rank's buf.
func (t *Struct[T]) Bcast(ctx context.Context, c *Comm, buf []T, root int) error {
	if err := t.ready(c, "bcast", buf); err != nil {
		return err
	}
	if c.rank == root {
		return Bcast(ctx, c, t.message(buf), root)
	}
	b := t.room(buf)
	if err := Bcast(ctx, c, b, root); err != nil {
		return err
	}
	t.settle(buf, b)
	return nil
}

// Gather collects in of every rank, in rank order, in out of the root. There, in may
// be its block of out.
func (t *Struct[T]) Gather(ctx context.Context, c *Comm, in, out []T, root int) error {
	if err := t.ready(c, "gather", in); err != nil {
		return err
	}
	if c.rank != root {
		return Gather(ctx, c, t.message(in), nil, root)
	}
	out, err := t.blocks(c, "gather", out, len(in), "out")
	if err = cmp.Or(err, t.live(c, "gather", out, AnySource, AnyTag)); err != nil {
		return err
	}
	b := t.room(out)
	if err := Gather(ctx, c, t.message(in), b, root); err != nil {
		return err
	}
	t.settle(out, b)
	return nil
}

// Scatter sends block i of the root's in to out of rank i. At the root, out may be its
// block of in.
func (t *Struct[T]) Scatter(ctx context.Context, c *Comm, in, out []T, root int) error {
	if err := t.ready(c, "scatter", out); err != nil {
		return err
	}
	var all []byte
	if c.rank == root {
		in, err := t.blocks(c, "scatter", in, len(out), "in")
		if err = cmp.Or(err, t.live(c, "scatter", in, AnySource, AnyTag)); err != nil {
			return err
		}
		all = t.message(in)
	}
	b := t.room(out)
	if err := Scatter(ctx, c, all, b, root); err != nil {
		return err
	}
	t.settle(out, b)
	return nil
}

// Allgather collects in of every rank, in rank order, in out of every rank. in may be
// the rank's block of out.
func (t *Struct[T]) Allgather(ctx context.Context, c *Comm, in, out []T) error {
	if err := t.ready(c, "allgather", in, out); err != nil {
		return err
	}
	out, err := t.blocks(c, "allgather", out, len(in), "out")
	if err != nil {
		return err
	}
	b := t.room(out)
	if err := Allgather(ctx, c, t.message(in), b); err != nil {
		return err
	}
	t.settle(out, b)
	return nil
}

// blocks returns the part of a buffer that has a block of n elements for each rank.
func (t *Struct[T]) blocks(c *Comm, what string, buf []T, n int, of string) ([]T, error) {
	if err := c.want(what, len(buf), n*c.Size(), of); err != nil {
		return nil, err
	}
	return buf[:n*c.Size()], nil
}
