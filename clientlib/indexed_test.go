package outrigger

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

func TestIndexedIsChecked(t *testing.T) {
	for _, c := range []struct {
		x    Indexed
		want string
	}{
		{Indexed{[]int{1}, []int{0, 1}}, "1 counts and 2 displacements"},
		{Indexed{[]int{1, 2}, []int{0, 9}}, "block 1 is 2 elements from 9 on, in a slice of 10"},
		{Indexed{[]int{1, -1}, []int{0, 5}}, "block 1 is -1 elements"},
		{Indexed{nil, []int{-1}}, "block 0 is 1 elements from -1 on"},
		{Indexed{nil, []int{math.MaxInt}}, "in a slice of 10"},
		{Indexed{[]int{math.MaxInt}, []int{1}}, "in a slice of 10"},
	} {
		if err := c.x.check(10, 20); !errors.Is(err, ErrInvalid) || !contains(err, c.want) {
			t.Errorf("%+v: %v, want %q", c.x, err, c.want)
		}
	}
	for _, x := range []Indexed{{[]int{10, 10, 1}, make([]int, 3)}, {nil, make([]int, 21)}} {
		if err := x.check(10, 20); !errors.Is(err, ErrInvalid) || !contains(err, "more than 20 elements") {
			t.Errorf("%+v, more than there is memory: %v", x, err)
		}
	}
	for _, x := range []Indexed{{}, {nil, []int{9, 0, 9}}, {[]int{0, 10}, []int{10, 0}}} {
		if err := x.check(10, 20); err != nil {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

// TestIndexedBlocksAreApart: a receive is refused if, and only if, an element is in two
// blocks.
func TestIndexedBlocksAreApart(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	met := [2]int{}
	for range 3000 {
		x := Indexed{make([]int, 1+r.IntN(5)), nil}
		x.Displs = make([]int, len(x.Counts))
		owners, want := make([]int, 20), 0
		for i := range x.Counts {
			x.Counts[i] = r.IntN(4)
			x.Displs[i] = r.IntN(20 - x.Counts[i])
			for k := range x.Counts[i] {
				owners[x.Displs[i]+k]++
				if owners[x.Displs[i]+k] > 1 {
					want = 1
				}
			}
		}
		met[want]++
		if err := x.apart(); (err != nil) != (want == 1) {
			t.Fatalf("seed %d: %+v: %v", seed, x, err)
		}
	}
	if met[0] == 0 || met[1] == 0 {
		t.Errorf("seed %d: %v of a kind", seed, met)
	}
}

// TestIndexedMessage: the blocks are sent in the order of the list, and received into the
// blocks as far as the message reaches. No other memory is changed, and no memory stays lent.
func TestIndexedMessage(t *testing.T) {
	s, f := attachTo(t, shape{})
	ctx, c := t.Context(), s.World()
	buf := make([]uint64, 3000)
	for i := range buf {
		buf[i] = uint64(i % 251)
	}
	x := Indexed{[]int{1000, 0, 3, 50}, []int{2000, 5, 1, 100}}
	wait := f.answering(func() {
		d := f.next(shm.OpSend)
		if mem := f.memory(&d); len(mem) != 8*1053 || mem[0] != 2000%251 || mem[8*1000] != 1 || mem[8*1003] != 100 {
			t.Errorf("%d bytes, which begin with %d", len(mem), mem[0])
		}
		f.done(d.Req, shm.StatusOK, 0)
	})
	if err := SendIndexed(ctx, c, buf, x, 1, 7); err != nil {
		t.Fatal(err)
	}
	wait()
	got := make([]uint64, 3000)
	r, err := IrecvIndexed(c, got, x, 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpRecv)
	for i := range 1002 { // one element short of the third block
		f.memory(&d)[8*i] = 9
	}
	f.done(d.Req, shm.StatusOK, 8*1002)
	if st, err := r.Wait(ctx); err != nil || Count[uint64](st) != 1002 {
		t.Fatal(st, err)
	}
	want := make([]uint64, 3000)
	for i := range 1000 {
		want[2000+i] = 9
	}
	want[1], want[2] = 9, 9
	if !slices.Equal(got, want) {
		t.Error("the elements are elsewhere")
	}
	if n := lent(s); n != 0 {
		t.Errorf("%d blocks of the arena are not given back", n)
	}
}

// TestIndexedErrors: errors name the mistake before anything is sent. The error for a message
// of another type comes after its arrival.
func TestIndexedErrors(t *testing.T) {
	s, f := attachTo(t, shape{})
	ctx, c := t.Context(), s.World()
	buf := make([]uint64, 10)
	if err := SendIndexed(ctx, c, buf, Indexed{nil, []int{10}}, 1, 7); !contains(err, "rank 0") || !errors.Is(err, ErrInvalid) {
		t.Errorf("beyond the slice: %v", err)
	}
	if _, err := IrecvIndexed(c, buf, Indexed{nil, []int{3, 4, 3}}, 1, 7); !contains(err, "blocks 0 and 2 share element 3") {
		t.Errorf("one element twice: %v", err)
	}
	if err := SendIndexed(ctx, c, buf, Indexed{nil, []int{3, 4, 3}}, NullRank, 7); err != nil {
		t.Errorf("to NullRank: %v", err)
	}
	f.quiet()
	r, err := IrecvIndexed(c, buf, Indexed{nil, []int{3, 4}}, 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	f.done(f.next(shm.OpRecv).Req, shm.StatusOK, 12)
	if _, err := r.Wait(ctx); !contains(err, "its sender has another type") {
		t.Errorf("12 bytes: %v", err)
	}
	if n := lent(s); n != 0 {
		t.Errorf("%d blocks of the arena are not given back", n)
	}
}
