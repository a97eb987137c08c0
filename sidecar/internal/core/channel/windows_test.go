package channel

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

const (
	testFirst  = 64 << 10
	testWidest = 512 << 10
	testBudget = 1 << 20
	testDelay  = 1000 // of an acknowledgement; small, so that a pod that waits for its turn is not silent
)

// pod is a room of a job whose frames the test carries. It keeps the charges of messages until they
// are received.
type pod struct {
	idle
	r    *Room
	out  map[link.Peer][]link.Frame
	kept map[link.Peer][]uint64
}

func (x *pod) Post(p link.Peer, frames []*link.Frame) int {
	for _, f := range frames {
		x.out[p] = append(x.out[p], *f)
	}
	return len(frames)
}

func (x *pod) Frame(p link.Peer, h *wire.Header, _ []byte) error {
	if h.Type == wire.Eager {
		if !x.r.Peer(p).Credit().Charge(Units(h.A)) {
			return link.ErrProtocol
		}
		x.kept[p] = append(x.kept[p], h.A)
	}
	return nil
}

// job is a pod that receives, and others that send to it.
type job struct {
	t    *testing.T
	now  int64
	pods []*pod
}

func newJob(t *testing.T, pods int, features ...uint64) *job {
	t.Helper()
	j := &job{t: t, now: 1}
	for i := range pods {
		allowed := ranks.NewAllowance(1<<20, 1<<20)
		x := &pod{out: map[link.Peer][]link.Frame{}, kept: map[link.Peer][]uint64{}}
		cfg := Config{
			Self: link.Peer(i), Peers: pods, First: uint32(i), Last: uint32(i), CreditBytes: testWidest, CreditFirst: testFirst, Widens: true, CreditBudget: testBudget,
			Heartbeat: 500e6, DeadAfter: 4500e6, StartWithin: 60e9, AckDelay: testDelay,
		}
		if i > 0 && len(features) >= i { // a peer of an earlier release
			cfg.CreditFirst, cfg.Widens = testWidest, false
		}
		x.r = New(cfg, x, x, &allowed)
		x.room = x.r
		j.pods = append(j.pods, x)
	}
	for i := 1; i < pods; i++ {
		j.pods[0].r.Reach(j.pods[0].r.Peer(link.Peer(i)))
		j.pods[0].r.LinkUp(j.now, link.Peer(i), link.Caps{})
		j.pods[i].r.Reach(j.pods[i].r.Peer(0))
		j.pods[i].r.LinkUp(j.now, 0, link.Caps{})
	}
	j.carry()
	return j
}

// carry delivers all frames until none is left.
func (j *job) carry() {
	j.t.Helper()
	for more := true; more; {
		more = false
		for i, x := range j.pods {
			j.now += testDelay
			x.r.Tick(j.now, 0)
			x.r.Flush(j.now, x)
			for to, frames := range x.out {
				delete(x.out, to)
				for k := range frames {
					more = more || frames[k].Head.Seq != 0
					if err := j.pods[to].r.Deliver(j.now, link.Peer(i), &frames[k].Head, nil); err != nil {
						j.t.Fatalf("frame %v of pod %d: %v", frames[k].Head.Type, i, err)
					}
				}
			}
		}
	}
}

// send sends a message to pod 0, or announces it without credit.
func (j *job) send(from int, bytes uint64) (eager bool) {
	x := j.pods[from]
	p := x.r.Peer(0)
	kind := wire.RTS
	if eager = x.r.TakeCredit(p, bytes); eager {
		kind = wire.Eager
	}
	x.r.Queued(uint32(from))
	f, _ := x.r.Emit(p, kind)
	f.Head.A, f.Head.Src = bytes, uint32(from)
	j.carry()
	if !eager {
		j.pods[0].r.Announced(j.pods[0].r.Peer(link.Peer(from)), bytes)
		j.carry()
	}
	return eager
}

// receive receives all messages of a pod.
func (j *job) receive(from int) {
	x := j.pods[0]
	for _, n := range x.kept[link.Peer(from)] {
		x.r.Consumed(x.r.Peer(link.Peer(from)), n)
	}
	x.kept[link.Peer(from)] = nil
	j.carry()
}

// fill sends messages until pod from has no credit and gets no more, and returns their bytes.
func (j *job) fill(from int) (sum uint64) {
	const bytes = 16 << 10
	for refused := 0; refused < 3; {
		if j.send(from, bytes) {
			sum, refused = sum+bytes, 0
		} else {
			refused++
		}
	}
	return sum
}

func (j *job) window(from int) uint64 {
	return uint64(j.pods[0].r.Peer(link.Peer(from)).Credit().width) * wire.CreditUnit
}

// check checks that the windows are within the budget, and that both sides count alike.
func (j *job) check() {
	j.t.Helper()
	w := &j.pods[0].r.windows
	sum := uint64(w.left)
	for i := range j.pods {
		here, there := j.pods[0].r.Peer(link.Peer(i)).Credit(), j.pods[i].r.Peer(0).Credit()
		sum += uint64(here.width - w.first)
		if i > 0 && (there.used != here.taken || there.granted != here.grant || here.width < w.first || here.width > w.widest) {
			j.t.Errorf("pod %d: used %d of %d, counted %d of %d in a window of %d", i, there.used, there.granted, here.taken, here.grant, here.width)
		}
	}
	if sum != w.budget {
		j.t.Errorf("windows and the rest of the budget are %d units, want %d", sum, w.budget)
	}
}

// TestWindowsWiden checks that a peer that uses its window up gets a wider one, up to the widest,
// whether its messages are received or wait, and that one that does not keeps the first.
func TestWindowsWiden(t *testing.T) {
	j := newJob(t, 3)
	for range 100 {
		if !j.send(1, 256) {
			t.Fatal("a small message has no credit")
		}
		j.receive(1)
	}
	if j.window(1) != testFirst || j.pods[0].r.Stats().Widened != 0 {
		t.Errorf("a peer with one message at a time has a window of %d", j.window(1))
	}
	if sum := j.fill(1); sum != testWidest || j.window(1) != testWidest {
		t.Errorf("%d bytes wait, in a window of %d, want %d", sum, j.window(1), testWidest)
	}
	for range 8 {
		j.send(2, testFirst)
		j.receive(2)
	}
	if j.window(2) <= testFirst {
		t.Errorf("a stream of received messages has a window of %d", j.window(2))
	}
	j.receive(1)
	j.check()
}

// TestWidensOnceUntilTold checks that a window is not widened again before the peer knows of the last
// time, whether its messages are received or announced, nor while the peer is not connected.
func TestWidensOnceUntilTold(t *testing.T) {
	j := newJob(t, 2)
	r := j.pods[0].r
	p := r.Peer(1)
	for range testFirst / (1 << 10) {
		if !j.send(1, 1<<10) {
			t.Fatal("a message has no credit")
		}
	}
	for _, n := range j.pods[0].kept[1] {
		r.Consumed(p, n)
		r.Announced(p, 64<<10)
	}
	j.pods[0].kept[1] = nil
	if j.window(1) != 2*testFirst {
		t.Errorf("a window of %d before the peer was told, want %d", j.window(1), 2*testFirst)
	}
	j.carry()
	j.check()
	for j.send(1, 1<<10) && len(j.pods[0].kept[1]) < 2*testFirst/(1<<10) {
	}
	width := j.window(1)
	r.Rest(p)
	for _, n := range j.pods[0].kept[1] {
		r.Consumed(p, n)
	}
	if j.window(1) != width {
		t.Errorf("the window of a peer that is not connected has grown from %d to %d", width, j.window(1))
	}
}

// TestBudgetIsShared checks that a silent peer gives its credit back when another one needs it, that
// the credit which its waiting messages use is not asked for, and that a peer above its share gives
// back if none is silent.
func TestBudgetIsShared(t *testing.T) {
	j := newJob(t, 6)
	for from := 1; from <= 3; from++ {
		j.fill(from)
	}
	if left := j.pods[0].r.windows.left; left != 0 {
		t.Fatalf("%d units of the budget are left", left)
	}
	j.now += silentAfter
	j.fill(4)
	j.now += silentAfter
	j.fill(4)
	if s := j.pods[0].r.Stats(); s.Asked != 0 {
		t.Errorf("%d peers were asked for credit that their messages use", s.Asked)
	}
	j.receive(4)
	j.receive(1)
	j.receive(2) // the messages of pod 3 wait
	waiting := j.window(3)
	j.now += silentAfter
	j.send(4, 256)
	for range 20 {
		j.fill(4)
		j.receive(4)
		j.now += silentAfter
	}
	j.check()
	if j.window(4) != testWidest || j.window(3) != waiting {
		t.Errorf("windows of %d, %d, %d and %d bytes", j.window(1), j.window(2), j.window(3), j.window(4))
	}
	if s := j.pods[0].r.Stats(); s.Asked == 0 || s.Narrowed == 0 {
		t.Errorf("%d peers were asked, %d gave credit back", s.Asked, s.Narrowed)
	}
	j.receive(3)
	// Now all send all the time.
	for range 200 {
		for from := 1; from <= 5; from++ {
			for range 8 {
				j.send(from, 16<<10)
			}
			j.receive(from)
		}
	}
	j.check()
	share := uint64(testBudget / 5)
	for from := 1; from <= 5; from++ {
		if w := j.window(from); w < testFirst+share/4 {
			t.Errorf("pod %d has a window of %d of a share of %d", from, w, testFirst+share)
		}
	}
}

// TestWindowOfAnEarlierRelease checks that a peer that does not know Yield may use the widest window
// at once and keeps it, and that one for which the budget does not suffice is refused by name.
func TestWindowOfAnEarlierRelease(t *testing.T) {
	j := newJob(t, 4, 0, 0) // pods 1 and 2
	if sum := j.fill(1); sum != testWidest {
		t.Errorf("%d bytes without a frame of the receiver, want %d", sum, testWidest)
	}
	if s := j.pods[0].r.Stats(); s.Widened != 0 || j.window(2) != testWidest {
		t.Errorf("%d windows are widened, pod 2 has %d", s.Widened, j.window(2))
	}
	j.fill(3)
	j.receive(1)
	j.now += silentAfter
	j.fill(3)
	if s := j.pods[0].r.Stats(); s.Asked != 0 || j.window(1) != testWidest {
		t.Errorf("%d peers were asked, pod 1 has %d", s.Asked, j.window(1))
	}
	j.check()

	x := newJob(t, 2).pods[0]
	x.r.windows.fixed, x.r.Peer(1).credit.met = x.r.windows.budget-1, false
	x.r.LinkUp(5, 1, link.Caps{})
	err := x.r.Deliver(6, 1, &wire.Header{Type: wire.Ack, A: wire.FeatureAgain, Credit: testWidest / wire.CreditUnit}, nil)
	const want = "peer broke the protocol: pod 1 has protocol 2 without Yield, this one 2 with it; the first may send 512 KiB at once, for which this one has no memory: use images of one release"
	if err == nil || err.Error() != want {
		t.Errorf("a peer of an earlier release without memory for it: %v", err)
	}
}

// TestYieldedIsChecked checks that a peer gives back what it was asked for, or less, and once, and
// only what it has.
func TestYieldedIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		asked, used uint32
		gives       uint64
		ok          bool
	}{
		"not asked":       {0, 0, 0, false},
		"more than asked": {64, 0, 65 * wire.CreditUnit, false},
		"no multiple":     {64, 0, wire.CreditUnit + 1, false},
		"what it has not": {64, testFirst/wire.CreditUnit + 32, 64 * wire.CreditUnit, false},
		"less":            {64, 0, 0, true},
		"all":             {64, 0, 64 * wire.CreditUnit, true},
	} {
		j := newJob(t, 2)
		j.fill(1)
		j.receive(1)
		p := j.pods[0].r.Peer(1)
		j.pods[0].r.windows.left += int64(p.credit.width) - testFirst/wire.CreditUnit - 64
		p.credit.width = testFirst/wire.CreditUnit + 64
		p.credit.taken = p.credit.grant - p.credit.width + c.used
		p.credit.asked = c.asked
		h := wire.Header{Type: wire.Yielded, Seq: p.Arrived() + 1, A: c.gives, Credit: p.credit.granted}
		err := j.pods[0].r.Deliver(j.now, 1, &h, nil)
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, link.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		h.Seq++
		if err := j.pods[0].r.Deliver(j.now, 1, &h, nil); !errors.Is(err, link.ErrProtocol) {
			t.Errorf("%s, again: %v", name, err)
		}
	}
}

// TestWideningAllocatesNothing checks that messages and the decisions about windows do not allocate.
func TestWideningAllocatesNothing(t *testing.T) {
	j := newJob(t, 4)
	for from := 1; from <= 3; from++ {
		j.fill(from)
		j.receive(from)
	}
	r := j.pods[0].r
	p := r.Peer(1)
	if n := testing.AllocsPerRun(100, func() {
		p.credit.Charge(1)
		r.Consumed(p, wire.CreditUnit)
		r.widen(p)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestBusyIsNotSilent checks that a peer that sends a message between a Yield and its answer does
// not count as silent.
func TestBusyIsNotSilent(t *testing.T) {
	j := newJob(t, 2)
	j.fill(1)
	j.receive(1)
	r, x := j.pods[0].r, j.pods[1].r
	p := r.Peer(1)
	j.now += 10 * silentAfter
	p.credit.silent(j.now)
	r.now = j.now
	x.TakeCredit(x.Peer(0), 256)
	r.ask(p, 64)
	j.now += 2 * silentAfter
	if !j.send(1, 16<<10) || p.credit.asked != 0 {
		t.Fatal("the message has no credit, or the Yield no answer")
	}
	if p.credit.silent(j.now) {
		t.Error("the peer has just sent a message and counts as silent")
	}
}
