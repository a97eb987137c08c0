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

// standing lets no time pass but what step says.
func standing(l *Link) (step func(time.Duration)) {
	now := time.Now()
	l.lending.clock = func() time.Time { return now }
	return func(d time.Duration) { now = now.Add(d) }
}

// lendingHub is a hub that lends, with the word of each of its peers.
func lendingHub(t *testing.T, peers int) *hub {
	t.Helper()
	h := newHub(t, bootstrap.ReceivesOwn, peers)
	h.to.cfg.Lends = true
	for _, c := range h.to.conns {
		c.local.lanes, c.remote.lanes = true, true
	}
	return h
}

// ask is what a peer says to have a queue pair.
func (h *hub) ask(peer int, number uint32) {
	h.t.Helper()
	o := goodOffer()
	if err := h.to.conns[peer].heard((&laneWord{kind: laneAsk, number: number, offer: &o}).encode()); err != nil {
		h.t.Fatal(err)
	}
}

// made is how many queue pairs of a peer exist.
func (h *hub) made(peer int) int { return h.to.conns[peer].lanes }

// TestLanesOverAndOver: a peer that asks for queue pairs and ends them without end has few
// made: one a turn, a burst at once, and then what time allows; those that end before they
// are made cost nothing.
func TestLanesOverAndOver(t *testing.T) {
	h := lendingHub(t, 2)
	step := standing(h.to)
	side, err := h.to.side()
	if err != nil {
		t.Fatal(err)
	}
	device := side.nic.(*fakeNIC)
	number := uint32(0)
	play := func(turns int) (made int) {
		before := device.asked
		for range turns {
			h.to.conns[0].words = nil // they are heard
			for range 8 {             // what fits its credit in a turn
				h.ask(0, number)
				number++
			}
			at := device.asked
			h.to.Poll(h.got)
			if n := device.asked - at; n > 1 {
				t.Fatalf("a turn makes %d queue pairs", n)
			}
			for n := range h.to.conns[0].answered {
				if err := h.to.conns[0].heard((&laneWord{kind: laneEnd, asker: true, number: n}).encode()); err != nil {
					t.Fatal(err)
				}
			}
		}
		return device.asked - before
	}
	if n := play(500); n != laneBurst {
		t.Errorf("%d are made at once, want %d", n, laneBurst)
	}
	for range 10 {
		step(lanePeerEach)
		if n := play(5); n != 1 {
			t.Errorf("%d are made after a pause, want 1", n)
		}
	}
	for range 10 {
		h.to.Poll(h.got)
	}
	if h.to.lending.lanes != 0 || h.made(0) != 0 || len(side.lanes) != 0 || h.to.Arm() {
		t.Errorf("%d queue pairs are left, %d in their domain, or the engine may not sleep", h.to.lending.lanes, len(side.lanes))
	}
	if h.to.conns[0] == nil || len(h.to.conns[0].wanted) > wantedMax {
		t.Error("the connection is gone, or keeps what has ended")
	}
}

// TestLanesTakeTurns: however many queue pairs others want, and however much of the pace
// of all they take, the next one made is of who has had least.
func TestLanesTakeTurns(t *testing.T) {
	const peers = 9
	h := lendingHub(t, peers)
	step := standing(h.to)
	for peer := range peers - 1 {
		for n := range uint32(50) {
			h.ask(peer, n)
		}
	}
	for range 2 * laneBurst {
		h.to.Poll(h.got)
	}
	if n := h.to.lending.lanes; n != laneBurst {
		t.Fatalf("%d are made for all at once, want %d", n, laneBurst)
	}
	h.ask(peers-1, 1)
	turns := 0
	for ; h.made(peers-1) == 0; turns++ {
		step(lanePause)
		if h.to.Poll(h.got); turns > peers {
			t.Fatal("the last one has none")
		}
	}
	if n := h.to.lending.lanes; n != laneBurst+turns {
		t.Errorf("%d are made, want %d", n, laneBurst+turns)
	}
}

// TestLanesWakeNobody: an engine sleeps while the queue pairs that are wanted wait for time,
// of one peer or of all, and not when one may be made.
func TestLanesWakeNobody(t *testing.T) {
	for name, c := range map[string]struct {
		peers int
		pause time.Duration
	}{"one peer's pace": {1, lanePeerEach}, "that of all": {2, lanePause}} {
		t.Run(name, func(t *testing.T) {
			h := lendingHub(t, 2)
			step := standing(h.to)
			for n := range uint32(laneBurst/c.peers + 1) {
				for peer := range c.peers {
					h.ask(peer, n)
				}
			}
			if !h.to.Arm() {
				t.Error("the engine sleeps, and queue pairs are to be made")
			}
			for h.to.lending.lanes < laneBurst {
				h.to.Poll(h.got)
			}
			if h.to.Poll(h.got); h.to.Arm() {
				t.Error("the engine is kept awake by what has to wait")
			}
			step(c.pause)
			if !h.to.Arm() {
				t.Error("the engine sleeps, and a queue pair may be made")
			}
		})
	}
}

// TestEndedWantNothing: a connection that has ended is not kept for the queue pairs that it
// wanted, though its peer takes no words, and none of those is made.
func TestEndedWantNothing(t *testing.T) {
	h := lendingHub(t, 2)
	side, err := h.to.side()
	if err != nil {
		t.Fatal(err)
	}
	h.ask(0, 1)
	h.to.conns[0].words = make([][]byte, lanesMax)
	h.to.Forget(0)
	for range 3 {
		h.to.Poll(h.got)
	}
	if n := side.nic.(*fakeNIC).asked; len(h.to.lending.steps.wanting) != 0 || n != 0 {
		t.Errorf("%d connections want some, %d queue pairs are made", len(h.to.lending.steps.wanting), n)
	}
}

// TestLanesEndByTurns: a connection that ends with many queue pairs has them destroyed one a
// turn, while others are heard; its end is told when all are.
func TestLanesEndByTurns(t *testing.T) {
	for name, end := range map[string]func(h *hub){
		"breaks":       func(h *hub) { h.to.conns[0].fail(errSocket) },
		"is forgotten": func(h *hub) { h.to.Forget(0) },
	} {
		t.Run(name, func(t *testing.T) {
			h := lendingHub(t, 2)
			const many = laneBurst / 2
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
					t.Fatalf("its end is told, or its own queue pair destroyed, before the %d others are", many-device.died)
				}
				before := device.died
				if !h.hears(1) {
					t.Fatal("the other peer is not heard")
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
			if len(h.nic.pairs) != 1 || c.lanes != 0 || h.to.Arm() {
				t.Errorf("%d queue pairs are left, %d beside them, or the engine may not sleep", len(h.nic.pairs), c.lanes)
			}
		})
	}
}

// TestReplacedWithLanes: a connection that replaces another is taken when the queue pairs
// that this had beside it are destroyed, one a turn.
func TestReplacedWithLanes(t *testing.T) {
	h := lendingHub(t, 2)
	const many = laneBurst / 2
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
		old.replaced = time.Now() // however slow this machine is
		if h.to.Poll(h.got); turns > 2*many {
			t.Fatalf("in %d turns %d queue pairs are left", turns, old.lanes)
		}
		turns++
	}
	if old.lanes != 0 || turns < many {
		t.Errorf("it is taken after %d turns, and the last one has %d queue pairs", turns, old.lanes)
	}
}

// TestForgottenTakesNothing: a connection that is forgotten, and is there until the queue
// pairs beside it are destroyed, takes nothing in meanwhile: it would be lost, and its
// sender told that it has come.
func TestForgottenTakesNothing(t *testing.T) {
	h := lendingHub(t, 2)
	h.ask(0, 1)
	h.to.Poll(h.got)
	pair := h.to.conns[0].pair.(*fakePair)
	h.to.Forget(0)
	if h.to.lending.lanes != 1 || !pair.failed {
		t.Errorf("%d queue pairs are to be destroyed before it, and it takes in what comes: %v", h.to.lending.lanes, !pair.failed)
	}
}

// TestWantedAreBounded: as many queue pairs of a peer wait to be made as there may be, of
// which those that have ended are none.
func TestWantedAreBounded(t *testing.T) {
	h := lendingHub(t, 2)
	c := h.to.conns[0]
	for n := range uint32(wantedMax) {
		h.ask(0, n)
	}
	h.ask(0, wantedMax)
	if len(c.answered) != wantedMax || len(c.words) != 1 {
		t.Fatalf("%d are wanted, and %d were refused, want %d and 1", len(c.answered), len(c.words), wantedMax)
	}
	if err := c.heard((&laneWord{kind: laneEnd, asker: true, number: 3}).encode()); err != nil {
		t.Fatal(err)
	}
	h.ask(0, wantedMax)
	if len(c.answered) != wantedMax || len(c.wanted) != wantedMax || len(c.words) != 1 {
		t.Errorf("%d are wanted, and %d were refused, though one has ended", len(c.answered), len(c.words)-1)
	}
}

// TestLanesOfAGoneDevice: none is made when the device is gone, and nobody waits for it.
func TestLanesOfAGoneDevice(t *testing.T) {
	h := lendingHub(t, 2)
	d, err := h.to.side()
	if err != nil {
		t.Fatal(err)
	}
	h.ask(0, 1)
	h.nic.broken = unix.EIO
	h.to.Poll(h.got)
	if n := d.nic.(*fakeNIC).asked; h.to.gone == nil || n != 0 {
		t.Errorf("the device is gone: %v; %d queue pairs are made", h.to.gone, n)
	}
	for len(h.got.downs) < 2 {
		h.to.Poll(h.got)
	}
	if h.to.Arm() {
		t.Error("the engine is kept awake by what is never made")
	}
}

// TestLaneStepsKeepAwake: an engine does not sleep while a queue pair is to be connected,
// or to be destroyed.
func TestLaneStepsKeepAwake(t *testing.T) {
	h := lendingHub(t, 2)
	c := h.to.conns[0]
	d, err := h.to.side()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.laneTo(d, 1); !errors.Is(err, errNotYet) {
		t.Fatal(err)
	}
	for h.to.Arm() {
		h.to.Poll(h.got)
	}
	ln, o := only(t, c.asked), goodOffer()
	for _, w := range []laneWord{{kind: laneAnswer, number: ln.number, offer: &o}, {kind: laneEnd, number: ln.number}} {
		if err := c.heard(w.encode()); err != nil {
			t.Fatal(err)
		}
		if !h.to.Arm() {
			t.Errorf("it sleeps after word %d", w.kind)
		}
		if h.to.Poll(h.got); h.to.Arm() {
			t.Errorf("it is kept awake after word %d", w.kind)
		}
	}
}

// TestAnswersAreJoinedByTurns: queue pairs that a peer answers for all at once are connected
// one a turn.
func TestAnswersAreJoinedByTurns(t *testing.T) {
	h := lendingHub(t, 2)
	c := h.to.conns[0]
	d, err := h.to.side()
	if err != nil {
		t.Fatal(err)
	}
	const many = 8
	for n := range uint32(many) {
		if _, err := c.laneTo(d, n+1); !errors.Is(err, errNotYet) {
			t.Fatal(err)
		}
	}
	for c.lanes < many {
		h.to.Poll(h.got)
	}
	ready := func() (n int) {
		for _, ln := range c.asked {
			if ln.ready {
				n++
			}
		}
		return n
	}
	o := goodOffer()
	for n := range c.asked {
		for range 2 { // a second answer is none
			if err := c.heard((&laneWord{kind: laneAnswer, number: n, offer: &o}).encode()); err != nil {
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
	if ready() != many || h.to.lending.unanswered != 0 || h.to.stats.Lanes != many || len(h.to.lending.steps.joins) != 0 {
		t.Errorf("%d of %d are connected, %d are unanswered", ready(), many, h.to.lending.unanswered)
	}
}

// TestLanesOfAGoneDomain: a queue pair that is wanted when its application leaves is not
// made, at either end, and is no failure: nothing was tried. Nor is one that there is no
// room for.
func TestLanesOfAGoneDomain(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	c, d := a.conns[0], a.lending.byRegion[lentRegion]
	asked := a.app.asked
	o := goodOffer()
	if err := c.heard((&laneWord{kind: laneAsk, number: 9, domain: d.number, offer: &o}).encode()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.laneTo(d, 1); !errors.Is(err, errNotYet) {
		t.Fatal(err)
	}
	a.DropRegion(lentRegion)
	a.Poll(a)
	a.Poll(a)
	if a.app.asked != asked || len(c.asked)+len(c.answered) != 0 || len(c.past().fails) != 0 {
		t.Errorf("%d queue pairs are made in a domain that has ended, %d are waited for, %d failures are noted", a.app.asked-asked, len(c.asked)+len(c.answered), len(c.past().fails))
	}
	c = b.conns[0]
	if _, err := c.laneTo(b.lending.byRegion[lentRegion], 1); !errors.Is(err, errNotYet) {
		t.Fatal(err)
	}
	b.lending.lanes += lanesMax
	b.Poll(b)
	b.lending.lanes -= lanesMax
	if len(c.asked) != 0 || len(c.past().fails) != 0 {
		t.Errorf("%d queue pairs are waited for that there is no room for, %d failures are noted", len(c.asked), len(c.past().fails))
	}
}

// unconnected is a pair that cannot be connected, and counts who tries.
type unconnected struct {
	pair
	tries int
}

func (p *unconnected) connect(*offer, *offer) error { p.tries++; return unix.EINVAL }

// TestAnswersThatComeToNothing: a queue pair that ends after its answer has come is not
// connected any more, and one that cannot be connected ends.
func TestAnswersThatComeToNothing(t *testing.T) {
	for _, ended := range []bool{true, false} {
		h := lendingHub(t, 2)
		c := h.to.conns[0]
		d, err := h.to.side()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.laneTo(d, 1); !errors.Is(err, errNotYet) {
			t.Fatal(err)
		}
		h.to.Poll(h.got)
		ln, o := only(t, c.asked), goodOffer()
		p := &unconnected{pair: ln.pair}
		ln.pair = p
		words := []laneWord{{kind: laneAnswer, number: ln.number, offer: &o}, {kind: laneEnd, number: ln.number}}
		if !ended {
			words = words[:1]
		}
		for _, w := range words {
			if err := c.heard(w.encode()); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			h.to.Poll(h.got)
		}
		if tried := p.tries > 0; tried == ended || !ln.over || h.to.lending.lanes != 0 || h.to.lending.unanswered != 0 {
			t.Errorf("ended before: %v; connected %d times, over: %v; %d queue pairs are left, %d unanswered", ended, p.tries, ln.over, h.to.lending.lanes, h.to.lending.unanswered)
		}
	}
}

// TestSilentWords: a peer that takes no words about queue pairs has no more made than it
// was told of.
func TestSilentWords(t *testing.T) {
	h := lendingHub(t, 2)
	step := standing(h.to)
	c := h.to.conns[0]
	c.credit.spent = c.credit.granted // it grants nothing
	d, err := h.to.side()
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint32(20 * lanesMax) {
		_, _ = c.laneTo(d, n+1) // most are refused: too many wait
		step(time.Second)
		h.to.watch.look = true // those that are not answered are given up
		h.to.Poll(h.got)
	}
	if n := len(c.words); n > 3*lanesMax {
		t.Errorf("%d words wait for it", n)
	}
}

// TestManyDomains: a peer that names ever other domains is not asked more often for it, and
// another connection is no new beginning.
func TestManyDomains(t *testing.T) {
	h := lendingHub(t, 2)
	standing(h.to)
	c := h.to.conns[0]
	for range failsMax {
		c.failed(laneEnds{0, 1})
	}
	for n := range uint32(3 * failsKept) {
		c.failed(laneEnds{0, n + 2})
	}
	if !c.tired(laneEnds{0, 1}) {
		t.Error("what has failed is forgotten, since others have failed")
	}
	if n := len(h.to.lending.pasts[0].fails); n > failsKept+1 {
		t.Errorf("%d pairs of domains are remembered", n)
	}
	if !c.tired(laneEnds{0, 1 << 20}) || c.tired(laneEnds{0, 2}) {
		t.Error("those that are too many are asked for without end, or one that has failed once is not any more")
	}
	h.to.Forget(0)
	h.connect(0)
	if !h.to.conns[0].tired(laneEnds{0, 1}) {
		t.Error("another connection is a new beginning")
	}
	passTime(h.to.conns[0], failsPause)
	if c := h.to.conns[0]; c.tired(laneEnds{0, 1}) {
		t.Error("time forgives nothing")
	}
	h.to.conns[0].failed(laneEnds{0, 1 << 21})
	if n := len(h.to.lending.pasts[0].fails); n > 3 {
		t.Errorf("%d pairs of domains are remembered that time has forgiven", n)
	}
}

// TestLookAtLanes: queue pairs of which nothing is heard are asked about a few a turn.
func TestLookAtLanes(t *testing.T) {
	h := lendingHub(t, 2)
	step := standing(h.to)
	for n := range uint32(3 * laneLooks) {
		h.ask(0, n)
	}
	for h.made(0) < 3*laneLooks {
		h.to.Poll(h.got)
	}
	asked := 0
	for _, ln := range h.to.lending.domains[0].lanes {
		ln.pair = &probed{ln.pair, &asked}
		ln.since, ln.ops.under = h.to.lending.clock(), 1
		ln.d.under++
	}
	step(laneLook)
	for i := range 4 {
		if h.to.probeLanes(); asked != min(i+1, 3)*laneLooks {
			t.Errorf("after %d turns %d are asked about", i+1, asked)
		}
	}
	for _, ln := range h.to.lending.domains[0].lanes {
		ln.ops.under = 0
		ln.d.under--
	}
}

type probed struct {
	pair
	asked *int
}

func (p *probed) works() error { *p.asked++; return nil }

// TestLaneDiesWithReads: what a lane has under way when it ends is told when its queue pair
// is destroyed, and not before; frames of the connection go on.
func TestLaneDiesWithReads(t *testing.T) {
	a, b, ln := waiting(t)
	ln.fail(errSilent)
	if len(a.dones) != 1 || len(a.ended) != 0 {
		t.Fatalf("%d reads have ended while their queue pair is there", len(a.dones)-1+len(a.ended))
	}
	ln.completed(&completion{id: idOf(ln.tag, 0)}, a) // one has ended before; nothing more begins
	if ln.ops.under != piecesMax-1 {
		t.Errorf("%d requests are under way", ln.ops.under)
	}
	a.pass(b)
	for token := range uint64(3) {
		if err := a.dones[10+token]; !errors.Is(err, link.ErrBroken) {
			t.Errorf("read %d ends with %v", token, err)
		}
	}
	if a.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: 1}}}) != 1 {
		t.Error("the connection takes no frames")
	}
	if dst, src, err := a.read(t, b, 20, true, true); err != nil || !bytes.Equal(dst, src) {
		t.Errorf("another queue pair: %v, or the bytes are not there", err)
	}
}
