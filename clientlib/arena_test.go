package outrigger

import (
	"errors"
	"strings"
	"testing"
)

// What cannot be allocated is refused by its kind, and says what to do.
func TestAllocRefused(t *testing.T) {
	s, _ := attachTo(t, shape{})
	if _, err := Alloc[int64](s, -1); !errors.Is(err, ErrInvalid) {
		t.Errorf("-1 elements: %v, want ErrInvalid", err)
	}
	if _, err := Alloc[int64](s, 1<<40); !errors.Is(err, ErrNoMemory) {
		t.Errorf("2^40 elements: %v, want ErrNoMemory", err)
	}
	all := len(s.arenaMem)
	held, err := Alloc[byte](s, all/2+1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Alloc[byte](s, all/2); !errors.Is(err, ErrNoMemory) || !strings.Contains(err.Error(), "raise memory.arena") {
		t.Errorf("more than is free: %v", err)
	}
	if err := Free(s, held); err != nil {
		t.Fatal(err)
	}
	if _, err := Alloc[byte](s, all/2); err != nil {
		t.Errorf("after Free: %v", err)
	}
}

// A block is found again, also by who asked for another size than it got.
func TestBorrowedBlocksAreFoundAgain(t *testing.T) {
	var a arena
	a.init(1 << 20)
	for _, n := range []int{100, 9600, 16 << 10, cacheMax} {
		first, _, err := a.borrow(n)
		if err != nil {
			t.Fatal(err)
		}
		a.giveBack(first, n)
		if again, _, err := a.borrow(n); err != nil || again != first {
			t.Errorf("%d bytes: at %d, and then at %d: %v", n, first, again, err)
		}
	}
}
