package outrigger

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// inPlaceCalls are all in-place forms that one operand of 8 elements serves, as rank 2
// of 4 calls them; it is the root.
func inPlaceCalls() map[string]func(context.Context, *Comm, []int64) error {
	return map[string]func(context.Context, *Comm, []int64) error{
		"allreduce": func(ctx context.Context, c *Comm, b []int64) error { return AllreduceInPlace(ctx, c, b, Sum) },
		"reduce":    func(ctx context.Context, c *Comm, b []int64) error { return ReduceInPlace(ctx, c, b, Sum, 2) },
		"scan":      func(ctx context.Context, c *Comm, b []int64) error { return ScanInPlace(ctx, c, b, Sum) },
		"reduce-scatter": func(ctx context.Context, c *Comm, b []int64) error {
			return ReduceScatterInPlace(ctx, c, b, nil, Sum)
		},
		"reduce-scatter, counts": func(ctx context.Context, c *Comm, b []int64) error {
			return ReduceScatterInPlace(ctx, c, b, []int{1, 2, 2, 3}, Sum)
		},
		"gather":    func(ctx context.Context, c *Comm, b []int64) error { return GatherInPlace(ctx, c, b, 2) },
		"scatter":   func(ctx context.Context, c *Comm, b []int64) error { return ScatterInPlace(ctx, c, b, 2) },
		"allgather": AllgatherInPlace[int64],
		"gatherv": func(ctx context.Context, c *Comm, b []int64) error {
			return Gatherv(ctx, c, b[3:6], b, []int{1, 2, 3, 2}, nil, 2)
		},
		"scatterv": func(ctx context.Context, c *Comm, b []int64) error {
			return Scatterv(ctx, c, b, []int{1, 2, 3, 2}, []int{0, 1, 3, 6}, b[3:6], 2)
		},
		"allgatherv": func(ctx context.Context, c *Comm, b []int64) error {
			return Allgatherv(ctx, c, b[3:6], b, []int{1, 2, 3, 2}, nil)
		},
	}
}

// TestCollectivesRefuse: arguments that would give wrong results, or none, are refused before
// the rank communicates.
func TestCollectivesRefuse(t *testing.T) {
	s, f := attachTo(t, shape{ranks: 4})
	ctx, w := t.Context(), s.World()
	b, err := Alloc[int64](s, 17)
	if err != nil {
		t.Fatal(err)
	}
	triple, err := StructOf[struct{ A, B, C int16 }]()
	if err != nil {
		t.Fatal(err)
	}
	structs := make([]struct{ A, B, C int16 }, 8)
	for want, err := range map[string]error{
		"alltoall: invalid argument: in and out share memory":                 Alltoall(ctx, w, b[:8], b[:8]),
		"alltoall: invalid argument: in and out share memory, and received":   Alltoall(ctx, w, b[:8], b[7:15]),
		"alltoall: invalid argument: in and out share memory, and received b": triple.Alltoall(ctx, w, structs, structs),
		"allreduce (64 bytes): invalid argument: no operation: give it":       AllreduceInPlace(ctx, w, b[:8], Op{}),
		"reduce (64 bytes): invalid argument: Replace and NoOp are for":       Reduce(ctx, w, b[:8], b[8:16], Replace, 0),
		"scan (64 bytes): invalid argument: Replace and NoOp are for":         Scan(ctx, w, b[:8], b[8:16], NoOp),
	} {
		if !errors.Is(err, ErrInvalid) || !contains(err, want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f.quiet()
	wait := f.answering(func() { f.done(f.next(shm.OpColl).Req, shm.StatusOK, 0) })
	if err := Alltoall(ctx, w, b[:8], b[8:]); err != nil { // neighbours, and out is longer
		t.Error(err)
	}
	wait()
	self, f := attachTo(t, shape{ranks: 1})
	wait = f.answering(func() { f.done(f.next(shm.OpColl).Req, shm.StatusOK, 0) })
	alone := []int64{1, 2}
	if err := Alltoall(ctx, self.World(), alone, alone); err != nil {
		t.Error(err)
	}
	wait()
}

// TestInPlaceHasOneOperand: the engine gets an in-place collective with one operand that has
// all elements, in Go memory and in the arena.
func TestInPlaceHasOneOperand(t *testing.T) {
	for name, call := range inPlaceCalls() {
		for _, shared := range []bool{false, true} {
			s, f := attachTo(t, shape{rank: 2, ranks: 4})
			buf := make([]int64, 8)
			if shared {
				var err error
				if buf, err = Alloc[int64](s, 8); err != nil {
					t.Fatal(err)
				}
			}
			for i := range buf {
				buf[i] = int64(i + 1)
			}
			wait := f.answering(func() {
				d := f.next(shm.OpColl)
				b := f.block(&d)
				if b.Flags&shm.CollInPlace == 0 || b.In != b.Out || b.InBytes != 64 || b.OutBytes != 64 {
					t.Errorf("%s, shared %t: %+v", name, shared, b)
				}
				mem := f.arena[b.Out : b.Out+b.OutBytes]
				for i := range 8 {
					if mem[8*i] != byte(i+1) {
						t.Errorf("%s, shared %t: element %d is %d", name, shared, i, mem[8*i])
					}
					mem[8*i] += 100
				}
				f.done(d.Req, shm.StatusOK, 0)
			})
			if err := call(t.Context(), s.World(), buf); err != nil {
				t.Errorf("%s, shared %t: %v", name, shared, err)
			}
			wait()
			if want := []int64{101, 102, 103, 104, 105, 106, 107, 108}; !slices.Equal(buf, want) {
				t.Errorf("%s, shared %t: the result is %v", name, shared, buf)
			}
		}
	}
}

// TestTwoOperandsAreNotInPlace: a collective with separate operands has two.
func TestTwoOperandsAreNotInPlace(t *testing.T) {
	s, f := attachTo(t, shape{rank: 2, ranks: 4})
	in, out := make([]int64, 8), make([]int64, 8)
	for _, start := range []func() (Request, error){
		func() (Request, error) { return Iallreduce(s.World(), in, out, Sum) },
		func() (Request, error) { return Igather(s.World(), in[:2], out, 2) },
		func() (Request, error) { return Iscatter(s.World(), in, out[:2], 2) },
		func() (Request, error) { return Iallgather(s.World(), in[:2], out) },
		func() (Request, error) { return IreduceScatter(s.World(), in, out[:2], nil, Sum) },
	} {
		if _, err := start(); err != nil {
			t.Fatal(err)
		}
		d := f.next(shm.OpColl)
		if b := f.block(&d); b.Flags&shm.CollInPlace != 0 || b.In == b.Out {
			t.Errorf("%+v", b)
		}
	}
}

// TestInPlaceSizes: a buffer that does not have one block per rank, or is too short for its
// counts, is refused.
func TestInPlaceSizes(t *testing.T) {
	s, f := attachTo(t, shape{rank: 2, ranks: 4})
	buf := make([]int64, 7)
	calls := inPlaceCalls()
	for _, name := range []string{"gather", "scatter", "allgather", "reduce-scatter", "reduce-scatter, counts"} {
		if err := calls[name](t.Context(), s.World(), buf); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s of %d elements by 4 ranks: %v", name, len(buf), err)
		}
	}
	f.quiet()
}
