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
