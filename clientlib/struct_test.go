package outrigger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// particle has no padding; loose has some inside and at its end.
type particle struct {
	Pos, Vel [3]float64
	ID       int32
	Kind     uint32
}

type loose struct {
	A int8
	B int64
	C struct {
		X uint16
		Y [2]uint32
	}
	D int8
}

func structOf[T any](t *testing.T) *Struct[T] {
	t.Helper()
	x, err := StructOf[T]()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestRunsOfTypes(t *testing.T) {
	for _, c := range []struct {
		of   any
		want string
	}{
		{particle{}, "[{0 56}]"},
		{loose{}, "[{0 1} {8 10} {20 9}]"},
		{[2]loose{}, "[{0 1} {8 10} {20 9} {32 1} {40 10} {52 9}]"},
		{[1 << 20]particle{}, fmt.Sprintf("[{0 %d}]", 56<<20)},
		{struct {
			_ [4]byte
			c complex128
		}{}, "[{0 4} {8 16}]"},
		{struct {
			None [1 << 40]struct{}
			X    int16
		}{}, "[{0 2}]"},
		{float32(0), "[{0 4}]"},
	} {
		typ := reflect.TypeOf(c.of)
		if got, err := runsOf(typ, "T"); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%v: %v, %v; want %s", typ, got, err, c.want)
		}
	}
}

// TestStructRefusesFields: a type that cannot be sent is refused with the name of the field
// and the remedy.
func TestStructRefusesFields(t *testing.T) {
	type named struct{ Label string }
	for want, check := range map[string]func() error{
		"named.Label is a string":        func() error { _, err := StructOf[named](); return err },
		".Many[].Label is a string":      func() error { _, err := StructOf[struct{ Many [3]named }](); return err },
		".Next is a *outrigger.particle": func() error { _, err := StructOf[struct{ Next *particle }](); return err },
		".Live is a bool, and a message has numbers, and arrays and structs of them; use a uint8": func() error { _, err := StructOf[struct{ Live bool }](); return err },
		".List is a []float64": func() error { _, err := StructOf[struct{ List []float64 }](); return err },
		".At is a uintptr":     func() error { _, err := StructOf[struct{ At uintptr }](); return err },
		".Any is a interface":  func() error { _, err := StructOf[struct{ Any any }](); return err },
		"nothing in it":        func() error { _, err := StructOf[struct{ None [0]int }](); return err },
		"padding in more than": func() error { _, err := StructOf[[5000]loose](); return err },
	} {
		if err := check(); !errors.Is(err, ErrInvalid) || !contains(err, want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestStructThatNobodyMade(t *testing.T) {
	s, f := attachTo(t, shape{})
	var x Struct[particle]
	ctx, c := t.Context(), s.World()
	for i, err := range []error{
		x.Send(ctx, c, nil, 1, 1), x.Bcast(ctx, c, nil, 0), x.Gather(ctx, c, nil, nil, 0), x.Scatter(ctx, c, nil, nil, 0), x.Allgather(ctx, c, nil, nil),
		x.Gatherv(ctx, c, nil, nil, nil, nil, 0), x.Scatterv(ctx, c, nil, nil, nil, nil, 0), x.Allgatherv(ctx, c, nil, nil, nil, nil),
		x.Alltoall(ctx, c, nil, nil), x.Alltoallv(ctx, c, nil, nil, nil, nil, nil, nil),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	f.quiet()
}

// TestStructWithPadding: only the fields of a type with padding are transferred. The padding
// of the receiver's elements stays unchanged, and so do elements that the message does not
// reach.
func TestStructWithPadding(t *testing.T) {
	s, f := attachTo(t, shape{})
	x := structOf[loose](t)
	if x.Size() != 20 {
		t.Fatalf("%d bytes a message's element, want 20", x.Size())
	}
	buf := make([]loose, 100)
	for i := range rawBytes(buf) {
		rawBytes(buf)[i] = 0xee // including the padding
	}
	for i := range buf {
		buf[i].A, buf[i].B, buf[i].D = int8(i), int64(i)<<40, int8(i+1)
		buf[i].C.X, buf[i].C.Y = uint16(i), [2]uint32{uint32(i), 7}
	}
	sent := make([]byte, 0, 2000)
	wait := f.answering(func() {
		d := f.next(shm.OpSend)
		sent = append(sent, f.memory(&d)...)
		f.done(d.Req, shm.StatusOK, 0)
	})
	if err := x.Send(t.Context(), s.World(), buf, 1, 7); err != nil {
		t.Fatal(err)
	}
	wait()
	if len(sent) != 2000 || slices.Contains(sent, 0xee) {
		t.Fatalf("%d bytes were sent, want 2000 without padding", len(sent))
	}
	got := make([]loose, 101)
	r, err := x.Irecv(s.World(), got, 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpRecv)
	copy(f.memory(&d), sent)
	f.done(d.Req, shm.StatusOK, 2000)
	st, err := r.Wait(t.Context())
	if err != nil || x.Count(st) != 100 || !slices.Equal(got[:100], buf) || got[100] != (loose{}) {
		t.Errorf("%+v, %v: %v", st, err, got)
	}
	if rawBytes(got)[1] != 0 {
		t.Error("padding was written")
	}
	if n := lent(s); n != 0 {
		t.Errorf("%d blocks of the arena are not given back", n)
	}
}

// TestDenseStructIsNotCopied: a type without padding is sent without a copy.
func TestDenseStructIsNotCopied(t *testing.T) {
	s, f := attachTo(t, shape{})
	x := structOf[particle](t)
	buf, err := x.Alloc(s, 1000)
	if err != nil {
		t.Fatal(err)
	}
	off, _ := s.inArena(rawBytes(buf))
	r, err := x.Isend(s.World(), buf, 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpSend)
	if d.Class != shm.ClassArena || d.Addr() != uint64(off) || d.Len() != 56_000 {
		t.Errorf("%+v, want 56000 bytes from %d", d, off)
	}
	f.done(d.Req, shm.StatusOK, 0)
	if _, err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := x.Alloc(s, 1<<58); !errors.Is(err, ErrNoMemory) {
		t.Errorf("more than there is: %v", err)
	}
	if _, err := x.Alloc(s, -1); !errors.Is(err, ErrInvalid) {
		t.Errorf("a negative number: %v", err)
	}
	if err := x.Free(s, buf); err != nil {
		t.Error(err)
	}
}

// TestStructOfAnotherType: a message with a part of an element is of another type.
func TestStructOfAnotherType(t *testing.T) {
	s, f := attachTo(t, shape{})
	for name, recv := range map[string]func() (Status, error){
		"dense": func() (Status, error) {
			return structOf[particle](t).Recv(t.Context(), s.World(), make([]particle, 9), 1, 7)
		},
		"padded": func() (Status, error) { return structOf[loose](t).Recv(t.Context(), s.World(), make([]loose, 9), 1, 7) },
	} {
		wait := f.answering(func() { f.done(f.next(shm.OpRecv).Req, shm.StatusOK, 30) })
		if _, err := recv(); !errors.Is(err, ErrInvalid) || !contains(err, "another type") {
			t.Errorf("%s: %v", name, err)
		}
		wait()
	}
}

// TestPackedReceiveIsTakenBack: a blocking receive that unpacks is cancelled when its context
// ends.
func TestPackedReceiveIsTakenBack(t *testing.T) {
	s, f := attachTo(t, shape{})
	for name, recv := range map[string]func(context.Context) (Status, error){
		"strided": func(ctx context.Context) (Status, error) {
			return RecvStrided(ctx, s.World(), make([]int64, 30), Layout{Count: 10, Block: 1, Stride: 3}, 1, 7)
		},
		"indexed": func(ctx context.Context) (Status, error) {
			return RecvIndexed(ctx, s.World(), make([]int64, 30), Indexed{nil, []int{20, 3}}, 1, 7)
		},
		"struct": func(ctx context.Context) (Status, error) {
			return structOf[loose](t).Recv(ctx, s.World(), make([]loose, 30), 1, 7)
		},
	} {
		wait := f.answering(func() {
			req := f.next(shm.OpRecv).Req
			if got := f.next(shm.OpCancel).Req; got != req {
				t.Errorf("%s: request %d is cancelled, want %d", name, got, req)
			}
			f.done(req, shm.StatusCancelled, 0)
		})
		if _, err := recv(ended(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		wait()
	}
	if n := lent(s); n != 0 {
		t.Errorf("%d blocks of the arena are not given back", n)
	}
}

// TestStructDivisionThatDoesNotFit: a division that exceeds its buffer is refused, with the
// rank and the numbers of elements.
func TestStructDivisionThatDoesNotFit(t *testing.T) {
	s, f := attachTo(t, shape{})
	ctx, c := t.Context(), s.World()
	n := c.Size()
	ones := slices.Repeat([]int{1}, n)
	with := func(at, v int) []int {
		x := slices.Clone(ones)
		x[at] = v
		return x
	}
	x := structOf[loose](t)
	for want, err := range map[string]error{
		"the block of rank 1 is 9 elements from 1 on, and out has":      x.Allgatherv(ctx, c, nil, make([]loose, n), with(1, 9), nil),
		"the block of rank 1 is -1 elements from 1 on, and out has":     x.Allgatherv(ctx, c, nil, make([]loose, n), with(1, -1), nil),
		"the block of rank 0 is 1 elements from -2 on, and out":         x.Allgatherv(ctx, c, nil, make([]loose, n), ones, with(0, -2)),
		"the block of rank 0 is 1 elements from 9223372036854775807 on": x.Allgatherv(ctx, c, nil, make([]loose, n), ones, with(0, math.MaxInt)),
		"counts has 1 elements": x.Allgatherv(ctx, c, nil, make([]loose, n), ones[:1], nil),
	} {
		if !errors.Is(err, ErrInvalid) || !contains(err, want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f.quiet()
}
