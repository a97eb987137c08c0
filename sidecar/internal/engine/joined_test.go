package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestJoinedLater checks that a connection that its link cannot accept yet is offered again
// in the turns that follow, that a newer connection replaces it, and that the engine drops
// it when it closes.
func TestJoinedLater(t *testing.T) {
	e, _ := podOf(t, 1, core.Config{PodOf: []int32{0, 1}, Pods: 2}, &source{})
	var told []string
	say := func(what string) func() { return func() { told = append(told, what) } }
	later := func(what string, n int, then error) func() error {
		return func() error {
			if say(what)(); n > 0 {
				n--
				return link.ErrLater
			}
			return then
		}
	}
	turn := func(want ...string) {
		t.Helper()
		told = nil
		if e.Turn(); !slices.Equal(told, want) {
			t.Errorf("told is %q, want %q", told, want)
		}
	}
	connections := func() uint64 { s := e.Counters(); return s.Reconnects + s.Breaks }
	e.Joined(1, later("a", 2, nil), say("a is dropped"))
	turn("a")
	if !e.unfinished() {
		t.Error("the engine may sleep, and the link waits to be asked")
	}
	turn("a")
	turn("a")
	turn()
	if e.unfinished() || connections() != 0 {
		t.Errorf("it is connected, and yet there is something to do, or it is so %d times", connections()+1)
	}
	e.Joined(1, later("b", 9, nil), say("b is dropped"))
	turn("b")
	e.Joined(1, later("c", 1, nil), say("c is dropped"))
	turn("b", "b is dropped", "c")
	turn("c")
	if connections() == 0 {
		t.Error("the other connection is not told to the core")
	}
	e.Joined(1, later("d", 1, errors.New("no")), say("d is dropped"))
	turn("d")
	turn("d")
	turn()
	e.Joined(1, later("e", 9, nil), say("e is dropped"))
	turn("e")
	told = nil
	if err := e.Close(); err != nil || !slices.Equal(told, []string{"e is dropped"}) {
		t.Errorf("at its end: %v, %q", err, told)
	}
}
