package outrigger

import (
	"errors"
	"fmt"
	"testing"
)

func TestDims(t *testing.T) {
	for _, c := range []struct {
		n    int
		dims []int
		want string
	}{
		{1, []int{0, 0}, "[1 1]"},
		{6, []int{0, 0}, "[3 2]"},
		{12, []int{0, 0, 0}, "[3 2 2]"},
		{64, []int{0, 0, 0}, "[4 4 4]"},
		{7, []int{0, 0}, "[7 1]"},
		{12, []int{0, 2}, "[6 2]"},
		{12, []int{3, 4}, "[3 4]"},
		{36, []int{0, 0}, "[6 6]"},
	} {
		if got, err := Dims(c.n, c.dims); fmt.Sprint(got) != c.want || err != nil {
			t.Errorf("%d in %v: %v, %v; want %s", c.n, c.dims, got, err, c.want)
		}
	}
	for _, dims := range [][]int{{5, 0}, {-1, 0}, {3, 3}, {}} {
		if got, err := Dims(12, dims); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v, %v", dims, got, err)
		}
	}
}

// TestCartNeighbours uses a grid of 2 x 3 whose second dimension is periodic.
func TestCartNeighbours(t *testing.T) {
	for rank, want := range []string{
		"[0 0] up -2 3, left 2 1", "[0 1] up -2 4, left 0 2", "[0 2] up -2 5, left 1 0",
		"[1 0] up 0 -2, left 5 4", "[1 1] up 1 -2, left 3 5", "[1 2] up 2 -2, left 4 3",
	} {
		c := &Cart{&Comm{rank: rank, group: &group{size: 6}}, []int{2, 3}, []bool{false, true}}
		a, b := c.Shift(0, 1)
		l, r := c.Shift(1, 1)
		if got := fmt.Sprintf("%v up %d %d, left %d %d", c.Coords(rank), a, b, l, r); got != want {
			t.Errorf("rank %d: %s, want %s", rank, got, want)
		}
		if c.RankAt(c.Coords(rank)...) != rank {
			t.Errorf("rank %d is elsewhere", rank)
		}
	}
}

func TestLayoutIsChecked(t *testing.T) {
	for _, l := range []Layout{{0, 1, 1}, {1, 0, 1}, {2, 3, 2}, {3, 1, 5}, {-1, -1, -1}, {1<<62 + 1, 1, 4}, {2, 1, 1<<63 - 1}} {
		if err := l.check(10); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if err := (Layout{3, 2, 4}).check(10); err != nil {
		t.Error(err)
	}
}
