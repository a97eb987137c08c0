package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// hall is a lobby with a record of who was sent away.
type hall struct {
	*Lobby
	gone  []string
	clock time.Time
}

func open(places, share int) *hall {
	h := &hall{Lobby: New(places, share)}
	h.now = func() time.Time { return h.clock }
	return h
}

// enter brings a guest when all others have been there for long.
func (h *hall) enter(from, name string) *Guest {
	h.clock = h.clock.Add(talkingHold)
	return h.enterAtOnce(from, name)
}

func (h *hall) enterAtOnce(from, name string) *Guest {
	return h.Enter(from, func() { h.gone = append(h.gone, name) })
}

func (h *hall) wants(t *testing.T, gone ...string) {
	t.Helper()
	if !slices.Equal(h.gone, gone) {
		t.Errorf("sent away: %q, want %q", h.gone, gone)
	}
}

func TestSilentOnesGoFirst(t *testing.T) {
	h := open(3, 3)
	a := h.enter("x", "a")
	a.Spoke()
	h.enter("x", "b")
	h.enter("y", "c")
	h.wants(t)
	d := h.enter("y", "d")
	h.wants(t, "b")
	d.Spoke()
	d.Spoke() // again
	e := h.enter("z", "e")
	e.Spoke()
	h.wants(t, "b", "c")
	h.enter("z", "f") // all have spoken: the oldest
	h.wants(t, "b", "c", "a")
	if a.Leave() || !d.Leave() || d.Leave() || h.Guests() != 2 {
		t.Errorf("%d guests", h.Guests())
	}
	a.Spoke() // on its way out
}

// TestShare: those from one address send each other away, and nobody else.
func TestShare(t *testing.T) {
	h := open(4, 2)
	h.enter("other", "first")
	for i := range 5 {
		h.enter("flood", fmt.Sprint(i))
	}
	h.wants(t, "0", "1", "2")
	h.enter("other", "second")
	h.wants(t, "0", "1", "2")
}

// TestBurst: of many that come at once none has to begin again because of the
// others, until they have had their time.
func TestBurst(t *testing.T) {
	h := open(2, 2)
	a, b := h.enter("x", "a"), h.enterAtOnce("y", "b")
	if h.enterAtOnce("z", "c") != nil {
		t.Error("a place for a third at once")
	}
	a.Spoke()
	h.clock = h.clock.Add(silentHold)
	h.enterAtOnce("z", "d")
	h.wants(t, "b")
	b.Spoke() // too late
	h.clock = h.clock.Add(silentHold - 1)
	if h.enterAtOnce("z", "e") != nil {
		t.Error("a place beside one that speaks and one that has just come")
	}
	h.wants(t, "b")
}

// TestBounds: whatever happens there are never more guests than places, nor more
// from an address than its share, and the counts return to nothing.
func TestBounds(t *testing.T) {
	const places, share = 7, 3
	h := &hall{Lobby: New(places, share)}
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the same each time
	var guests []*Guest
	for range 20_000 {
		switch k := rng.IntN(4); {
		case k < 2:
			h.clock = h.clock.Add(time.Duration(rng.Int64N(int64(talkingHold))))
			if g := h.enterAtOnce(fmt.Sprint(rng.IntN(4)), ""); g != nil {
				guests = append(guests, g)
			}
		case len(guests) > 0:
			i := rng.IntN(len(guests))
			if k == 2 {
				guests[i].Spoke()
			} else {
				guests[i].Leave()
				guests = slices.Delete(guests, i, i+1)
			}
		}
		if h.Guests() > places {
			t.Fatalf("%d guests", h.Guests())
		}
		for from, n := range h.by {
			if n > share || n < 1 {
				t.Fatalf("%d guests from %s", n, from)
			}
		}
	}
	for _, g := range guests {
		g.Leave()
	}
	if h.Guests() != 0 || len(h.by) != 0 {
		t.Errorf("%d guests and %v are left", h.Guests(), h.by)
	}
}

// TestSilent: how long a silent guest keeps its place is its lobby's.
func TestSilent(t *testing.T) {
	h := open(1, 1)
	h.Silent(5 * silentHold)
	h.enter("x", "a")
	h.clock = h.clock.Add(4 * silentHold)
	if h.enterAtOnce("x", "b") != nil {
		t.Error("a place that is taken")
	}
	h.clock = h.clock.Add(silentHold)
	h.enterAtOnce("x", "c")
	h.wants(t, "a")
}
