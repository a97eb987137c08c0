package verbs

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// side is one end of a connection whose messages are under way for some time.
type side struct {
	credit
	sent     []word // under way to the other
	receives int    // posted and not used
	batch    int    // so many are posted again at once: one where they are shared
	taken    int    // used and not posted again
}

// word is what a message says.
type word struct {
	imm    uint32
	notice bool
}

const testNotice = 1<<noticeShift - 5

// send spends a receive of the other side.
func (s *side) send(to *side, notice bool, t *testing.T) {
	t.Helper()
	if to.receives == 0 {
		t.Fatal("a message finds no receive")
	}
	to.receives--
	if notice {
		s.sent = append(s.sent, word{s.spendNotice(testNotice), true})
	} else {
		s.sent = append(s.sent, word{s.spend(), false})
	}
}

// hear takes the oldest message of the other side.
func (s *side) hear(from *side, t *testing.T) {
	if len(from.sent) == 0 {
		return
	}
	w := from.sent[0]
	if w.notice {
		if notice, ok := s.heardNotice(w.imm); !ok || notice != testNotice {
			t.Fatalf("a correct peer's notice is %d, %v", notice, ok)
		}
	} else if !s.heard(w.imm, true) {
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

// TestCredit: in any order of events no message finds no receive, and both sides
// can always go on: with messages, with notices, and with both.
func TestCredit(t *testing.T) {
	for _, batch := range []int{recvSlots / 2, 1} {
		for notices := range 4 {
			t.Run(fmt.Sprint(notices, " of 3 are notices, posted again by ", batch), func(t *testing.T) {
				for _, start := range []uint32{1<<31 - 2*creditStep, 1<<32 - 6*creditStep} {
					creditFlows(t, notices, batch, start)
				}
				if batch == 1 { // receives of one's own are whole steps
					creditFlows(t, notices, batch, 1<<32-creditStep-1)
				}
			})
		}
	}
}

func creditFlows(t *testing.T, notices, batch int, start uint32) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, seed))
	a, b := &side{credit: newCredit(), receives: recvSlots, batch: batch}, &side{credit: newCredit(), receives: recvSlots, batch: batch}
	// Numbers wrap.
	for _, s := range []*side{a, b} {
		s.granted, s.spent, s.posted, s.told, s.came = start+recvSlots, start, start+recvSlots, start+recvSlots, start
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
			x.send(y, false, t)
		case talks && x.free() > 0:
			x.send(y, rng.IntN(3) < notices, t)
			carried++
			idle = 0
		default:
			if idle++; idle > 2000 {
				t.Fatalf("seed %d, step %d, from %#x on: nothing can be sent any more: %+v %+v", seed, step, start, a, b)
			}
		}
	}
	t.Logf("seed %d: %d messages", seed, carried)
	for _, s := range []*side{a, b} { // all that it was told of may come, and no more
		all := *s
		for all.came != all.told {
			if !all.heard(all.granted, true) {
				t.Fatalf("a message within the credit is refused: %+v", all.credit)
			}
		}
		again := all.credit
		if _, ok := again.heardNotice(again.granted / creditStep << noticeShift); ok || all.heard(all.granted, true) {
			t.Errorf("a message beyond the credit is taken: %+v", all.credit)
		}
	}
	for _, s := range []*side{a, b} {
		for s.left() == 0 {
			s.hear(map[*side]*side{a: b, b: a}[s], t)
		}
		if less := s.credit; less.heard(less.granted-1, true) {
			t.Errorf("a peer takes back what it has granted, and is believed: %+v", less)
		}
	}
	if a.heard(a.granted+1000, true) {
		t.Error("a peer grants more receives than there are, and is believed")
	}
	if _, ok := b.heardNotice((b.granted/creditStep + 3) << noticeShift); ok {
		t.Error("a peer grants more receives than there are by a notice, and is believed")
	}
}

// TestNoticesTellCredit: writes with notices that answer each other need no messages to
// tell of receives, and those that nobody answers have them in time.
func TestNoticesTellCredit(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		there := x.register(2<<20, 1<<20)
		here, err := x.a.Register(link.Ref{Region: 1, Off: 1 << 20, Len: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		const n = 200
		one := func(from *Link, key link.Key, at *diary, i int) {
			if err := from.Write(0, uint64(i), link.Ref{Region: 1, Len: 8}, key, 1<<noticeShift-1-uint64(i)); err != nil {
				t.Fatal(err)
			}
			from.Commit()
			x.until("a notice", func() bool { return len(at.written) == i+1 })
			if at.written[i] != 1<<noticeShift-1-uint64(i) {
				t.Fatalf("notice %d is %#x", i, at.written[i])
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

// TestCreditHurry: who has sent messages with content is told at the half of its receives;
// who has sent notices alone when it has few left. A notice that tells nothing new leaves
// that as it is.
func TestCreditHurry(t *testing.T) {
	for _, x := range []struct {
		what    string
		content bool
		notice  bool // goes the other way meanwhile
		due     bool
	}{{"messages", true, false, true}, {"messages, and a notice tells nothing", true, true, true}, {"notices", false, false, false}} {
		c := newCredit()
		for i := range creditStep {
			if x.content {
				c.heard(recvSlots, i == 0) // others only tell of receives
			} else {
				c.heardNotice(recvSlots / creditStep << noticeShift)
			}
		}
		if x.notice {
			c.spendNotice(1)
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
			c.heardNotice(recvSlots / creditStep << noticeShift)
		}
		if !c.due() {
			t.Errorf("%s: not due, and %d are left", x.what, 2*reserve)
		}
		for c.left() > 0 {
			c.spend()
		}
		c.heard(recvSlots, true)
		if c.repost(creditStep); c.due() {
			t.Errorf("%s: due, and nothing can be sent", x.what)
		}
	}
}

// TestCreditReserve: the last receives of the peer are not for messages with content.
func TestCreditReserve(t *testing.T) {
	c := newCredit()
	for n := recvSlots; n >= 0; n-- {
		if c.free() != max(0, n-reserve) || c.left() != n {
			t.Errorf("%d of %d receives are free, %d left", c.free(), n, c.left())
		}
		c.spend()
	}
}
