package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// recorder is a limiter with a record of the connections that it closed.
type recorder struct {
	*Limiter
	closed []string
	clock  time.Time
}

func open(slots, share int) *recorder {
	h := &recorder{Limiter: New(slots, share)}
	h.now = func() time.Time { return h.clock }
	return h
}

// enter admits a connection when all others have been there for long.
func (h *recorder) enter(from, name string) *Slot {
	h.clock = h.clock.Add(activeTime)
	return h.enterAtOnce(from, name)
}

func (h *recorder) enterAtOnce(from, name string) *Slot {
	return h.Admit(from, func() { h.closed = append(h.closed, name) })
}

func (h *recorder) wants(t *testing.T, closed ...string) {
	t.Helper()
	if !slices.Equal(h.closed, closed) {
		t.Errorf("closed: %q, want %q", h.closed, closed)
	}
}

func TestIdleAreClosedFirst(t *testing.T) {
	h := open(3, 3)
	a := h.enter("x", "a")
	a.MarkActive()
	h.enter("x", "b")
	h.enter("y", "c")
	h.wants(t)
	d := h.enter("y", "d")
	h.wants(t, "b")
	d.MarkActive()
	d.MarkActive() // a second call has no effect
	e := h.enter("z", "e")
	e.MarkActive()
	h.wants(t, "b", "c")
	h.enter("z", "f") // all are active: the oldest
	h.wants(t, "b", "c", "a")
	if a.Release() || !d.Release() || d.Release() || h.Len() != 2 {
		t.Errorf("%d slots in use", h.Len())
	}
	a.MarkActive() // while it is being closed
}

// TestShare checks that connections of one address displace each other, and no others.
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

// TestBurst checks that none of many connections that arrive at once is closed for
// another, until it has had its time.
func TestBurst(t *testing.T) {
	h := open(2, 2)
	a, b := h.enter("x", "a"), h.enterAtOnce("y", "b")
	if h.enterAtOnce("z", "c") != nil {
		t.Error("a third connection is admitted at once")
	}
	a.MarkActive()
	h.clock = h.clock.Add(idleTime)
	h.enterAtOnce("z", "d")
	h.wants(t, "b")
	b.MarkActive() // too late
	h.clock = h.clock.Add(idleTime - 1)
	if h.enterAtOnce("z", "e") != nil {
		t.Error("a connection is admitted although one is active and one is new")
	}
	h.wants(t, "b")
}

// TestBounds checks that there are never more connections than slots, nor more of an
// address than its share, and that the counts return to zero.
func TestBounds(t *testing.T) {
	const slots, share = 7, 3
	h := &recorder{Limiter: New(slots, share)}
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the same each time
	var list []*Slot
	for range 20_000 {
		switch k := rng.IntN(4); {
		case k < 2:
			h.clock = h.clock.Add(time.Duration(rng.Int64N(int64(activeTime))))
			if g := h.enterAtOnce(fmt.Sprint(rng.IntN(4)), ""); g != nil {
				list = append(list, g)
			}
		case len(list) > 0:
			i := rng.IntN(len(list))
			if k == 2 {
				list[i].MarkActive()
			} else {
				list[i].Release()
				list = slices.Delete(list, i, i+1)
			}
		}
		if h.Len() > slots {
			t.Fatalf("%d slots in use", h.Len())
		}
		for from, n := range h.by {
			if n > share || n < 1 {
				t.Fatalf("%d slots of %s", n, from)
			}
		}
	}
	for _, g := range list {
		g.Release()
	}
	if h.Len() != 0 || len(h.by) != 0 {
		t.Errorf("%d slots are in use, by %v", h.Len(), h.by)
	}
}

// TestSilent checks that SilentFor sets the time of a connection that has sent nothing.
func TestSilent(t *testing.T) {
	h := open(1, 1)
	h.SilentFor(5 * idleTime)
	h.enter("x", "a")
	h.clock = h.clock.Add(4 * idleTime)
	if h.enterAtOnce("x", "b") != nil {
		t.Error("a connection is admitted to a slot in use")
	}
	h.clock = h.clock.Add(idleTime)
	h.enterAtOnce("x", "c")
	h.wants(t, "a")
}
