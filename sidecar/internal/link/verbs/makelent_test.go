package verbs

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// standing gives the link a clock that only step advances.
func standing(l *Link) (step func(time.Duration)) {
	now := time.Now()
	l.lending.clock = func() time.Time { return now }
	return func(d time.Duration) { now = now.Add(d) }
}

// lendingHub returns a hub that lends, with the sides of each of its peers.
func lendingHub(t *testing.T, peers int) *hub {
	t.Helper()
	h := newHub(t, bootstrap.ReceivesOwn, peers)
	h.to.cfg.Lends = true
	for _, c := range h.to.conns {
		c.local.lends, c.remote.lends = true, true
	}
	return h
}

// ask handles the request of a peer for a queue pair.
func (h *hub) ask(peer int, number uint32) {
	h.t.Helper()
	o := goodOffer()
	if err := h.to.conns[peer].onLent((&lentMessage{kind: lentAsk, number: number, offer: &o}).encode()); err != nil {
		h.t.Fatal(err)
	}
}

// made returns how many queue pairs of a peer exist.
func (h *hub) made(peer int) int { return h.to.conns[peer].lentQPs }

// TestLentOverAndOver checks that a peer that asks for queue pairs and ends them without
// end gets few: one in a turn, a burst at once, and then what the rate allows; those that
// end before they are made cost nothing.
func TestLentOverAndOver(t *testing.T) {
	h := lendingHub(t, 2)
	step := standing(h.to)
	side, err := h.to.ownDomain()
	if err != nil {
		t.Fatal(err)
	}
	device := side.nic.(*fakeNIC)
	number := uint32(0)
	play := func(turns int) (made int) {
		before := device.asked
		for range turns {
			h.to.conns[0].lentOut = nil // the peer has read them
			for range 8 {               // the messages that fit its credit in a turn
				h.ask(0, number)
				number++
			}
			at := device.asked
			h.to.Poll(h.got)
			if n := device.asked - at; n > 1 {
				t.Fatalf("a turn makes %d queue pairs", n)
			}
			for n := range h.to.conns[0].answered {
				if err := h.to.conns[0].onLent((&lentMessage{kind: lentEnd, asker: true, number: n}).encode()); err != nil {
					t.Fatal(err)
				}
			}
		}
		return device.asked - before
	}
	if n := play(500); n != lentBurst {
		t.Errorf("%d are made at once, want %d", n, lentBurst)
	}
	for range 10 {
		step(lentPeerPause)
		if n := play(5); n != 1 {
			t.Errorf("%d are made after a pause, want 1", n)
		}
	}
	for range 10 {
		h.to.Poll(h.got)
	}
	if h.to.lending.lentQPs != 0 || h.made(0) != 0 || len(side.lentQPs) != 0 || h.to.Arm() {
		t.Errorf("%d queue pairs are left, %d in their domain, or the engine may not sleep", h.to.lending.lentQPs, len(side.lentQPs))
	}
	if h.to.conns[0] == nil || len(h.to.conns[0].wanted) > wantedMax {
		t.Error("the connection is gone, or keeps what has ended")
	}
}

// TestLentTakeTurns checks that however many queue pairs other peers want, and however
// much of the common rate they use, the next one made is of the peer that has had the
// fewest.
func TestLentTakeTurns(t *testing.T) {
	const peers = 9
	h := lendingHub(t, peers)
	step := standing(h.to)
	for peer := range peers - 1 {
		for n := range uint32(50) {
			h.ask(peer, n)
		}
	}
	for range 2 * lentBurst {
		h.to.Poll(h.got)
	}
	if n := h.to.lending.lentQPs; n != lentBurst {
		t.Fatalf("%d are made for all at once, want %d", n, lentBurst)
	}
	h.ask(peers-1, 1)
	turns := 0
	for ; h.made(peers-1) == 0; turns++ {
		step(lentPause)
		if h.to.Poll(h.got); turns > peers {
			t.Fatal("the last one has none")
		}
	}
	if n := h.to.lending.lentQPs; n != lentBurst+turns {
		t.Errorf("%d are made, want %d", n, lentBurst+turns)
	}
}

// TestLentWakeOnlyInTime checks that an engine sleeps while the wanted queue pairs wait
// for their time, of one peer or of all, and does not sleep when one may be made.
func TestLentWakeOnlyInTime(t *testing.T) {
	for name, c := range map[string]struct {
		peers int
		pause time.Duration
	}{"one peer's pace": {1, lentPeerPause}, "that of all": {2, lentPause}} {
		t.Run(name, func(t *testing.T) {
			h := lendingHub(t, 2)
			step := standing(h.to)
			for n := range uint32(lentBurst/c.peers + 1) {
				for peer := range c.peers {
					h.ask(peer, n)
				}
			}
			if !h.to.Arm() {
				t.Error("the engine sleeps although queue pairs are to be made")
			}
			for h.to.lending.lentQPs < lentBurst {
				h.to.Poll(h.got)
			}
			if h.to.Poll(h.got); h.to.Arm() {
				t.Error("a queue pair that must wait keeps the engine awake")
			}
			step(c.pause)
			if !h.to.Arm() {
				t.Error("the engine sleeps although a queue pair may be made")
			}
		})
	}
}

// TestEndedWantNothing checks that a connection that has ended is not retained for the
// queue pairs that it wanted, even if its peer reads no messages, and that none of those
// is made.
func TestEndedWantNothing(t *testing.T) {
	h := lendingHub(t, 2)
	side, err := h.to.ownDomain()
	if err != nil {
		t.Fatal(err)
	}
	h.ask(0, 1)
	h.to.conns[0].lentOut = make([][]byte, lentQPsMax)
	h.to.Forget(0)
	for range 3 {
		h.to.Poll(h.got)
	}
	if n := side.nic.(*fakeNIC).asked; len(h.to.lending.steps.wanting) != 0 || n != 0 {
		t.Errorf("%d connections want some, %d queue pairs are made", len(h.to.lending.steps.wanting), n)
	}
}

// TestLentEndByTurns checks that a connection that ends with many queue pairs has them
// destroyed one in a turn, while other peers are served, and that its end is reported
// after that.
func TestLentEndByTurns(t *testing.T) {
	for name, end := range map[string]func(h *hub){
		"breaks":       func(h *hub) { h.to.conns[0].fail(errSocket) },
		"is forgotten": func(h *hub) { h.to.Forget(0) },
	} {
		t.Run(name, func(t *testing.T) {
			h := lendingHub(t, 2)
			const many = lentBurst / 2
			for n := range uint32(many) {
				h.ask(0, n)
			}
			for h.made(0) < many {
				h.to.Poll(h.got)
			}
			c, device := h.to.conns[0], h.to.lending.domains[0].nic.(*fakeNIC)
			device.died = 0
			end(h)
			for turns := 0; device.died < many; turns++ {
				if len(h.got.downs) > 0 || len(h.nic.pairs) != 2 {
					t.Fatalf("its end is reported, or its own queue pair destroyed, before the %d others are destroyed", many-device.died)
				}
				before := device.died
				if !h.hears(1) {
					t.Fatal("the other peer is not served")
				}
				if n := device.died - before; n > 1 {
					t.Fatalf("a turn destroys %d queue pairs", n)
				}
				if turns > 10*many {
					t.Fatal("they are not destroyed")
				}
			}
			for range 3 {
				h.to.Poll(h.got)
			}
			if len(h.nic.pairs) != 1 || c.lentQPs != 0 || h.to.Arm() {
				t.Errorf("%d queue pairs are left, %d for lent memory, or the engine may not sleep", len(h.nic.pairs), c.lentQPs)
			}
		})
	}
}

// TestReplacedWithLent checks that a connection that replaces another is accepted when
// the lentQPs of the old one are destroyed, one in a turn.
func TestReplacedWithLent(t *testing.T) {
	h := lendingHub(t, 2)
	const many = lentBurst / 2
	for n := range uint32(many) {
		h.ask(0, n)
	}
	for h.made(0) < many {
		h.to.Poll(h.got)
	}
	old := h.to.conns[0]
	join := h.connect(0)
	turns := 0
	for err := join(); err != nil; err = join() {
		if !errors.Is(err, link.ErrLater) {
			t.Fatal(err)
		}
		old.replacedAt = time.Now() // however slow this machine is
		if h.to.Poll(h.got); turns > 2*many {
			t.Fatalf("in %d turns %d queue pairs are left", turns, old.lentQPs)
		}
		turns++
	}
	if old.lentQPs != 0 || turns < many {
		t.Errorf("it is accepted after %d turns, and the last one has %d queue pairs", turns, old.lentQPs)
	}
}

// TestForgottenTakesNothing checks that a forgotten connection accepts no messages while
// its lentQPs are being destroyed: a message would be lost although its sender sees it as
// delivered.
func TestForgottenTakesNothing(t *testing.T) {
	h := lendingHub(t, 2)
	h.ask(0, 1)
	h.to.Poll(h.got)
	pair := h.to.conns[0].pair.(*fakePair)
	h.to.Forget(0)
	if h.to.lending.lentQPs != 1 || !pair.failed {
		t.Errorf("%d queue pairs are to be destroyed before it, and it accepts messages: %v", h.to.lending.lentQPs, !pair.failed)
	}
}

// TestWantedAreBounded checks that a bounded number of queue pairs of a peer wait to be
// made, without those that have ended.
func TestWantedAreBounded(t *testing.T) {
	h := lendingHub(t, 2)
	c := h.to.conns[0]
	for n := range uint32(wantedMax) {
		h.ask(0, n)
	}
	h.ask(0, wantedMax)
	if len(c.answered) != wantedMax || len(c.lentOut) != 1 {
		t.Fatalf("%d are wanted, and %d were refused, want %d and 1", len(c.answered), len(c.lentOut), wantedMax)
	}
	if err := c.onLent((&lentMessage{kind: lentEnd, asker: true, number: 3}).encode()); err != nil {
		t.Fatal(err)
	}
	h.ask(0, wantedMax)
	if len(c.answered) != wantedMax || len(c.wanted) != wantedMax || len(c.lentOut) != 1 {
		t.Errorf("%d are wanted, and %d were refused, though one has ended", len(c.answered), len(c.lentOut)-1)
	}
}

// TestLentOfALostDevice checks that no queue pair is made, and none is waited for, when
// the device is lost.
func TestLentOfALostDevice(t *testing.T) {
	h := lendingHub(t, 2)
	d, err := h.to.ownDomain()
	if err != nil {
		t.Fatal(err)
	}
	h.ask(0, 1)
	h.nic.broken = unix.EIO
	h.to.Poll(h.got)
	if n := d.nic.(*fakeNIC).asked; h.to.lost == nil || n != 0 {
		t.Errorf("the device is gone: %v; %d queue pairs are made", h.to.lost, n)
	}
	for len(h.got.downs) < 2 {
		h.to.Poll(h.got)
	}
	if h.to.Arm() {
		t.Error("a queue pair that is never made keeps the engine awake")
	}
}

// TestLentStepsKeepAwake checks that an engine does not sleep while a queue pair is to be
// connected or destroyed.
func TestLentStepsKeepAwake(t *testing.T) {
	h := lendingHub(t, 2)
	c := h.to.conns[0]
	d, err := h.to.ownDomain()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.lentTo(d, 1); !errors.Is(err, errNotYet) {
		t.Fatal(err)
	}
	for h.to.Arm() {
		h.to.Poll(h.got)
	}
	q, o := only(t, c.asked), goodOffer()
	for _, w := range []lentMessage{{kind: lentAnswer, number: q.number, offer: &o}, {kind: lentEnd, number: q.number}} {
		if err := c.onLent(w.encode()); err != nil {
			t.Fatal(err)
		}
		if !h.to.Arm() {
			t.Errorf("it sleeps after message %d", w.kind)
		}
		if h.to.Poll(h.got); h.to.Arm() {
			t.Errorf("it is kept awake after message %d", w.kind)
		}
	}
}

// TestAnswersAreJoinedByTurns checks that queue pairs that a peer answers at once are
// connected one in a turn.
func TestAnswersAreJoinedByTurns(t *testing.T) {
	h := lendingHub(t, 2)
	c := h.to.conns[0]
	d, err := h.to.ownDomain()
	if err != nil {
		t.Fatal(err)
	}
	const many = 8
	for n := range uint32(many) {
		if _, err := c.lentTo(d, n+1); !errors.Is(err, errNotYet) {
			t.Fatal(err)
		}
	}
	for c.lentQPs < many {
		h.to.Poll(h.got)
	}
	ready := func() (n int) {
		for _, q := range c.asked {
			if q.ready {
				n++
			}
		}
		return n
	}
	o := goodOffer()
	for n := range c.asked {
		for range 2 { // a second answer is ignored
			if err := c.onLent((&lentMessage{kind: lentAnswer, number: n, offer: &o}).encode()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range many {
		if n := ready(); n != i {
			t.Fatalf("after %d turns %d are connected", i, n)
		}
		h.to.Poll(h.got)
	}
	if ready() != many || h.to.lending.unanswered != 0 || h.to.stats.LentPairs != many || len(h.to.lending.steps.joins) != 0 {
		t.Errorf("%d of %d are connected, %d are unanswered", ready(), many, h.to.lending.unanswered)
	}
}

// TestLentOfALostDomain checks that a queue pair that is wanted when its application
// leaves is not made, on either side, and does not count as a failure, since nothing was
// tried. The same holds for one beyond the bounds.
func TestLentOfALostDomain(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	c, d := a.conns[0], a.lending.byRegion[lentRegion]
	asked := a.app.asked
	o := goodOffer()
	if err := c.onLent((&lentMessage{kind: lentAsk, number: 9, domain: d.number, offer: &o}).encode()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.lentTo(d, 1); !errors.Is(err, errNotYet) {
		t.Fatal(err)
	}
	a.DropRegion(lentRegion)
	a.Poll(a)
	a.Poll(a)
	if a.app.asked != asked || len(c.asked)+len(c.answered) != 0 || len(c.history().fails) != 0 {
		t.Errorf("%d queue pairs are made in a domain that has ended, %d are waited for, %d failures are noted", a.app.asked-asked, len(c.asked)+len(c.answered), len(c.history().fails))
	}
	c = b.conns[0]
	if _, err := c.lentTo(b.lending.byRegion[lentRegion], 1); !errors.Is(err, errNotYet) {
		t.Fatal(err)
	}
	b.lending.lentQPs += lentQPsMax
	b.Poll(b)
	b.lending.lentQPs -= lentQPsMax
	if len(c.asked) != 0 || len(c.history().fails) != 0 {
		t.Errorf("%d queue pairs are waited for that there is no room for, %d failures are noted", len(c.asked), len(c.history().fails))
	}
}

// unconnected is a pair that cannot be connected, and counts the attempts.
type unconnected struct {
	pair
	tries int
}

func (p *unconnected) connect(*offer, *offer) error { p.tries++; return unix.EINVAL }

// TestAnswersThatComeToNothing checks that a queue pair that ends after its answer has
// arrived is not connected any more, and that one that cannot be connected ends.
func TestAnswersThatComeToNothing(t *testing.T) {
	for _, ended := range []bool{true, false} {
		h := lendingHub(t, 2)
		c := h.to.conns[0]
		d, err := h.to.ownDomain()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.lentTo(d, 1); !errors.Is(err, errNotYet) {
			t.Fatal(err)
		}
		h.to.Poll(h.got)
		q, o := only(t, c.asked), goodOffer()
		p := &unconnected{pair: q.pair}
		q.pair = p
		words := []lentMessage{{kind: lentAnswer, number: q.number, offer: &o}, {kind: lentEnd, number: q.number}}
		if !ended {
			words = words[:1]
		}
		for _, w := range words {
			if err := c.onLent(w.encode()); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			h.to.Poll(h.got)
		}
		if tried := p.tries > 0; tried == ended || !q.over || h.to.lending.lentQPs != 0 || h.to.lending.unanswered != 0 {
			t.Errorf("ended before: %v; connected %d times, over: %v; %d queue pairs are left, %d unanswered", ended, p.tries, q.over, h.to.lending.lentQPs, h.to.lending.unanswered)
		}
	}
}

// TestUnreadMessages checks that a peer that reads no messages about queue pairs gets no
// more than were announced to it.
func TestUnreadMessages(t *testing.T) {
	h := lendingHub(t, 2)
	step := standing(h.to)
	c := h.to.conns[0]
	c.credit.spent = c.credit.granted // it grants nothing
	d, err := h.to.ownDomain()
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint32(20 * lentQPsMax) {
		_, _ = c.lentTo(d, n+1) // most are refused: too many wait
		step(time.Second)
		h.to.watch.check = true // those that are not answered are ended
		h.to.Poll(h.got)
	}
	if n := len(c.lentOut); n > 3*lentQPsMax {
		t.Errorf("%d messages wait for it", n)
	}
}

// TestManyDomains checks that a peer that names ever new domains is not asked more often,
// and that another connection does not reset the failures.
func TestManyDomains(t *testing.T) {
	h := lendingHub(t, 2)
	standing(h.to)
	c := h.to.conns[0]
	for range failsMax {
		c.noteFailure(domainPair{0, 1})
	}
	for n := range uint32(3 * failsKept) {
		c.noteFailure(domainPair{0, n + 2})
	}
	if !c.failing(domainPair{0, 1}) {
		t.Error("a failure is dropped because others have failed")
	}
	if n := len(h.to.lending.histories[0].fails); n > failsKept+1 {
		t.Errorf("%d pairs of domains are remembered", n)
	}
	if !c.failing(domainPair{0, 1 << 20}) || c.failing(domainPair{0, 2}) {
		t.Error("domains beyond the table are asked for without end, or one that has failed once is not asked any more")
	}
	h.to.Forget(0)
	h.connect(0)
	if !h.to.conns[0].failing(domainPair{0, 1}) {
		t.Error("another connection resets the failures")
	}
	passTime(h.to.conns[0], failsPause)
	if c := h.to.conns[0]; c.failing(domainPair{0, 1}) {
		t.Error("failures do not expire")
	}
	h.to.conns[0].noteFailure(domainPair{0, 1 << 21})
	if n := len(h.to.lending.histories[0].fails); n > 3 {
		t.Errorf("%d pairs of domains are remembered although their failures have expired", n)
	}
}

// TestProbeLent checks that silent queue pairs are probed a few in a turn.
func TestProbeLent(t *testing.T) {
	h := lendingHub(t, 2)
	step := standing(h.to)
	for n := range uint32(3 * probesPerTurn) {
		h.ask(0, n)
	}
	for h.made(0) < 3*probesPerTurn {
		h.to.Poll(h.got)
	}
	asked := 0
	for _, q := range h.to.lending.domains[0].lentQPs {
		q.pair = &probed{q.pair, &asked}
		q.since, q.ops.inFlight = h.to.lending.clock(), 1
		q.d.inFlight++
	}
	step(probeAfter)
	for i := range 4 {
		if h.to.probeLent(); asked != min(i+1, 3)*probesPerTurn {
			t.Errorf("after %d turns %d are probed", i+1, asked)
		}
	}
	for _, q := range h.to.lending.domains[0].lentQPs {
		q.ops.inFlight = 0
		q.d.inFlight--
	}
}

type probed struct {
	pair
	asked *int
}

func (p *probed) check() error { *p.asked++; return nil }

// TestLentEndsWithReads checks that the operations of a lentQP that ends are reported
// when its queue pair is destroyed, and not before, and that frames of the connection
// continue.
func TestLentEndsWithReads(t *testing.T) {
	a, b, q := waiting(t)
	q.fail(errSilent)
	if len(a.dones) != 1 || len(a.ended) != 0 {
		t.Fatalf("%d reads have ended while their queue pair exists", len(a.dones)-1+len(a.ended))
	}
	q.completed(&completion{id: idOf(q.tag, 0)}, a) // one has ended before; no operation begins any more
	if q.ops.inFlight != piecesMax-1 {
		t.Errorf("%d requests are in flight", q.ops.inFlight)
	}
	a.pass(b)
	for token := range uint64(3) {
		if err := a.dones[10+token]; !errors.Is(err, link.ErrBroken) {
			t.Errorf("read %d ends with %v", token, err)
		}
	}
	if a.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: 1}}}) != 1 {
		t.Error("the connection accepts no frames")
	}
	if dst, src, err := a.read(t, b, 20, true, true); err != nil || !bytes.Equal(dst, src) {
		t.Errorf("another queue pair: %v, or the bytes are not there", err)
	}
}
