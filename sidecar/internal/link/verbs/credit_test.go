package verbs

import (
	"math/rand/v2"
	"testing"
)

// side is one end of a connection whose messages are under way for some time.
type side struct {
	credit
	sent     []uint32 // immediates under way to the other
	receives int      // posted and not used
	taken    int      // used and not posted again
}

// send spends a receive of the other side.
func (s *side) send(to *side, t *testing.T) {
	if to.receives == 0 {
		t.Fatal("a message finds no receive")
	}
	to.receives--
	s.sent = append(s.sent, s.spend())
}

// hear takes the oldest message of the other side.
func (s *side) hear(from *side, t *testing.T) {
	if len(from.sent) == 0 {
		return
	}
	if !s.heard(from.sent[0]) {
		t.Fatal("a correct peer's number is refused")
	}
	from.sent = from.sent[1:]
	s.taken++
	if s.taken >= recvSlots/2 {
		s.receives += s.taken
		s.repost(s.taken)
		s.taken = 0
	}
}

// TestCredit: in any order of events no message finds no receive, and both sides
// can always go on.
func TestCredit(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, seed))
	a, b := &side{credit: newCredit(), receives: recvSlots}, &side{credit: newCredit(), receives: recvSlots}
	// Numbers wrap.
	for _, s := range []*side{a, b} {
		s.granted, s.spent, s.posted, s.told = 1<<31-20+recvSlots, 1<<31-20, 1<<31-20+recvSlots, 1<<31-20+recvSlots
	}
	idle, carried := 0, 0
	for step := range 300_000 {
		x, y := a, b
		if rng.IntN(2) == 0 {
			x, y = b, a
		}
		talks := step%1000 < 500 || x == a // now and then only one side talks
		switch {
		case rng.IntN(3) == 0:
			x.hear(y, t)
		case x.due():
			x.send(y, t)
		case talks && x.free() > 0:
			x.send(y, t)
			carried++
			idle = 0
		default:
			if idle++; idle > 2000 {
				t.Fatalf("seed %d, step %d: nothing can be sent any more: %+v %+v", seed, step, a, b)
			}
		}
	}
	t.Logf("seed %d: %d messages", seed, carried)
	if !a.heard(a.granted + 1000) {
		return
	}
	t.Error("a peer grants more receives than there are, and is believed")
}
