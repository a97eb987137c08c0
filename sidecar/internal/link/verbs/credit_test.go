package verbs

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// side is one side of a connection whose messages are delayed.
type side struct {
	credit
	sent     []word // in flight to the other side
	receives int    // posted and not used
	batch    int    // receives posted again at once: one if they are shared
	taken    int    // used and not posted again
}

// word is a message.
type word struct {
	imm    uint32
	notify bool
}

const testNotice = 1<<notifyShift - 5

// send spends a receive of the other side.
func (s *side) send(to *side, notify bool, t *testing.T) {
	t.Helper()
	if to.receives == 0 {
		t.Fatal("no receive is left for a message")
	}
	to.receives--
	if notify {
		s.sent = append(s.sent, word{s.spendNotify(testNotice), true})
	} else {
		s.sent = append(s.sent, word{s.spend(), false})
	}
}

// hear handles the oldest message of the other side.
func (s *side) hear(from *side, t *testing.T) {
	if len(from.sent) == 0 {
		return
	}
	w := from.sent[0]
	if w.notify {
		if notify, ok := s.onNotify(w.imm); !ok || notify != testNotice {
			t.Fatalf("the notification of a correct peer is %d, %v", notify, ok)
		}
	} else if !s.onMessage(w.imm, true) {
		t.Fatal("a correct peer's number is refused")
	}
	from.sent = from.sent[1:]
	s.taken++
	if s.taken >= s.batch {
		s.receives += s.taken
		s.repost(s.taken)
		s.taken = 0
	}
}

// TestCredit checks that in any order of events each message finds a receive, and both
// sides can always continue: with messages, with notifications, and with both.
func TestCredit(t *testing.T) {
	for _, batch := range []int{recvSlots / 2, 1} {
		for withNotify := range 4 {
			t.Run(fmt.Sprint(withNotify, " of 3 are notifications, posted again by ", batch), func(t *testing.T) {
				for _, start := range []uint32{1<<31 - 2*creditStep, 1<<32 - 6*creditStep} {
					creditFlows(t, withNotify, batch, start)
				}
				if batch == 1 { // a connection's own receives are posted in whole steps
					creditFlows(t, withNotify, batch, 1<<32-creditStep-1)
				}
			})
		}
	}
}

func creditFlows(t *testing.T, withNotify, batch int, start uint32) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, seed))
	a, b := &side{credit: newCredit(), receives: recvSlots, batch: batch}, &side{credit: newCredit(), receives: recvSlots, batch: batch}
	// Numbers wrap around.
	for _, s := range []*side{a, b} {
		s.granted, s.spent, s.posted, s.announced, s.received = start+recvSlots, start, start+recvSlots, start+recvSlots, start
	}
	idle, carried := 0, 0
	for step := range 300_000 {
		x, y := a, b
		if rng.IntN(2) == 0 {
			x, y = b, a
		}
		talks := step%1000 < 500 || x == a // in every second half only one side sends
		switch {
		case rng.IntN(3) == 0:
			x.hear(y, t)
		case x.due():
			x.send(y, false, t)
		case talks && x.free() > 0:
			x.send(y, rng.IntN(3) < withNotify, t)
			carried++
			idle = 0
		default:
			if idle++; idle > 2000 {
				t.Fatalf("seed %d, step %d, from %#x on: no side can send any more: %+v %+v", seed, step, start, a, b)
			}
		}
	}
	t.Logf("seed %d: %d messages", seed, carried)
	for _, s := range []*side{a, b} { // all messages within the announced credit may arrive, and no more
		all := *s
		for all.received != all.announced {
			if !all.onMessage(all.granted, true) {
				t.Fatalf("a message within the credit is refused: %+v", all.credit)
			}
		}
		again := all.credit
		if _, ok := again.onNotify(again.granted / creditStep << notifyShift); ok || all.onMessage(all.granted, true) {
			t.Errorf("a message beyond the credit is accepted: %+v", all.credit)
		}
	}
	for _, s := range []*side{a, b} {
		for s.left() == 0 {
			s.hear(map[*side]*side{a: b, b: a}[s], t)
		}
		if less := s.credit; less.onMessage(less.granted-1, true) {
			t.Errorf("a peer that reduces its credit is accepted: %+v", less)
		}
	}
	if a.onMessage(a.granted+1000, true) {
		t.Error("a peer that grants more receives than there are is accepted")
	}
	if _, ok := b.onNotify((b.granted/creditStep + 3) << notifyShift); ok {
		t.Error("a peer that grants more receives than there are by a notification is accepted")
	}
}

// TestNotificationsAnnounceCredit checks that writes with notifications that answer each
// other need no messages to announce receives, and that those without answers are
// announced in time.
func TestNotificationsAnnounceCredit(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		there := x.register(2<<20, 1<<20)
		here, err := x.a.Register(link.Ref{Region: 1, Off: 1 << 20, Len: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		const n = 200
		one := func(from *Link, key link.Key, at *diary, i int) {
			if err := from.Write(0, uint64(i), link.Ref{Region: 1, Len: 8}, key, 1<<notifyShift-1-uint64(i)); err != nil {
				t.Fatal(err)
			}
			from.Commit()
			x.until("a notification", func() bool { return len(at.written) == i+1 })
			if at.written[i] != 1<<notifyShift-1-uint64(i) {
				t.Fatalf("notification %d is %#x", i, at.written[i])
			}
		}
		for i := range n {
			one(x.a, there, x.sb, i)
			one(x.b, here, x.sa, i)
		}
		if a, b := x.a.Stats(), x.b.Stats(); a.Calls != n || b.Calls != n {
			t.Errorf("%d and %d posts for %d writes each", a.Calls, b.Calls, n)
		}
		for i := n; i < 2*n; i++ {
			one(x.a, there, x.sb, i)
		}
		if b := x.b.Stats(); b.Calls > n+n/creditStep+1 {
			t.Errorf("%d posts for %d writes of the peer's", b.Calls-n, n)
		}
	})
}

// TestCreditUrgent checks that a peer that has sent messages with content receives an
// announcement at half of its receives, and a peer that has sent only notifications when
// it has few left. A notification that announces nothing changes neither.
func TestCreditUrgent(t *testing.T) {
	for _, x := range []struct {
		what    string
		content bool
		notify  bool // goes in the other direction meanwhile
		due     bool
	}{{"messages", true, false, true}, {"messages, and a notification announces nothing", true, true, true}, {"notifications", false, false, false}} {
		c := newCredit()
		for i := range creditStep {
			if x.content {
				c.onMessage(recvSlots, i == 0) // other messages only announce receives
			} else {
				c.onNotify(recvSlots / creditStep << notifyShift)
			}
		}
		if x.notify {
			c.spendNotify(1)
		}
		if c.due() {
			t.Errorf("%s: due before any are posted again", x.what)
		}
		if c.repost(creditStep - 1); c.due() {
			t.Errorf("%s: due before the half are posted again", x.what)
		}
		if c.repost(1); c.due() != x.due {
			t.Errorf("%s: due %v", x.what, c.due())
		}
		for range creditStep - 2*reserve {
			c.onNotify(recvSlots / creditStep << notifyShift)
		}
		if !c.due() {
			t.Errorf("%s: not due, although only %d are left", x.what, 2*reserve)
		}
		for c.left() > 0 {
			c.spend()
		}
		c.onMessage(recvSlots, true)
		if c.repost(creditStep); c.due() {
			t.Errorf("%s: due, although nothing can be sent", x.what)
		}
	}
}

// TestCreditReserve checks that the peer's last receives are not used for messages with
// content.
func TestCreditReserve(t *testing.T) {
	c := newCredit()
	for n := recvSlots; n >= 0; n-- {
		if c.free() != max(0, n-reserve) || c.left() != n {
			t.Errorf("%d of %d receives are free, %d left", c.free(), n, c.left())
		}
		c.spend()
	}
}
