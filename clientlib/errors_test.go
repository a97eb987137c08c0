package outrigger

import (
	"errors"
	"testing"
)

// A rank of a communicator is told with its world rank, by which the launcher and the
// other ranks' errors call it.
func TestErrorNamesWorldRanks(t *testing.T) {
	s := &Session{rank: 3}
	pair := &Comm{session: s, rank: 1, group: newGroup([]uint32{2, 3})}
	world := &Comm{session: s, rank: 3, group: &group{size: 4}}
	cause := errors.New("no")
	for want, err := range map[string]error{
		"outrigger: rank 1 of the communicator (world rank 3): recv with rank 0 (world rank 2) tag 7 (80 bytes): no": s.fail("recv", pair, 0, 7, 80, cause),
		"outrigger: rank 1 of the communicator (world rank 3): send with rank 9 tag 7: no":                           s.fail("send", pair, 9, 7, 0, cause),
		"outrigger: rank 1 of the communicator (world rank 3): barrier: no":                                          s.fail("barrier", pair, AnySource, AnyTag, 0, cause),
		"outrigger: rank 3: recv with rank 0 tag 7 (256 MiB): no":                                                    s.fail("recv", world, 0, 7, 256<<20, cause),
		"outrigger: rank 3: alloc (1 MiB, 1048577 bytes): no":                                                        s.fail("alloc", nil, AnySource, AnyTag, 1<<20+1, cause),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// What a rank gives to Include and Cart is judged before any other rank is asked.
func TestCartAndIncludeRefuse(t *testing.T) {
	s, f := attachTo(t, shape{ranks: 2})
	_, include := s.World().Include(t.Context(), []int{1, 1})
	_, grid := s.World().Cart(t.Context(), []int{3, 1 << 62}, nil)
	_, circle := s.World().Cart(t.Context(), []int{2}, []bool{true, true})
	for _, err := range []error{include, grid, circle} {
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%v is no *Error of ErrInvalid", err)
		}
	}
	f.quiet()
}

// TestDifference: lists of which the beginnings are equal are not told as two that
// look alike.
func TestDifference(t *testing.T) {
	mine, theirs := []int64{1, 10, 0, 1, 2, 3, 4, 5, 6, 7}, []int64{2, 10, 0, 1, 2, 3, 4, 5, 6, 7}
	if got, want := difference(mine, theirs, 3), "10 numbers that begin with [0 1 2 3 4 5 6 7] here; rank 3 gives the same up to there, and others then; all ranks give the same"; got != want {
		t.Errorf("%s", got)
	}
	mine[1], theirs[1] = 2, 1
	if got, want := difference(mine, theirs, 0), "[0 1] here, [0] at rank 0; all ranks give the same"; got != want {
		t.Errorf("%s", got)
	}
}
