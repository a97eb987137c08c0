package verbs

import (
	"errors"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// hub is a link with several peers over devices made of memory, each a link with one.
type hub struct {
	t    *testing.T
	to   *Link
	nic  *fakeNIC
	got  *diary
	from []*Link
	sent []uint64
}

func newHub(t *testing.T, receives string, peers int) *hub {
	t.Helper()
	f := newFabric()
	open := func(n int) (*Link, *fakeNIC) {
		device, err := f.open("fake")
		if err != nil {
			t.Fatal(err)
		}
		s, err := tcp.New(nil, n)
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLink(Config{Peers: n, Receives: receives, Stream: s, Log: slog.New(slog.DiscardHandler)}, nil, device)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		return l, device
	}
	h := &hub{t: t, got: newDiary(), sent: make([]uint64, peers)}
	h.to, h.nic = open(peers)
	for i := range peers {
		l, _ := open(1)
		h.from = append(h.from, l)
		h.connect(i)
	}
	h.to.Poll(h.got)
	return h
}

// connect joins a peer's end, and returns what the hub's link says to its own.
func (h *hub) connect(i int) func() error {
	h.t.Helper()
	e, g := ends(h.t, h.from[i], h.to)
	fds := sockets(h.t)
	if err := h.from[i].Join(0, fds[0], e); err != nil {
		h.t.Fatal(err)
	}
	again := func() error { return h.to.Join(link.Peer(i), fds[1], g) }
	if h.to.conns[i] == nil {
		if err := again(); err != nil {
			h.t.Fatal(err)
		}
	}
	return again
}

// hears has a peer send a frame, and reports whether one turn of the hub's brings it.
func (h *hub) hears(i int) bool {
	h.t.Helper()
	h.sent[i]++
	if h.from[i].Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: h.sent[i]}}}) != 1 {
		h.t.Fatal("the frame was not taken")
	}
	h.from[i].Poll(newDiary())
	before := len(h.got.heads)
	h.to.Poll(h.got)
	return len(h.got.heads) == before+1
}

// TestForgetWaitsForNobody: a connection that is forgotten is not waited for, whatever its
// device takes to say that its receives have ended; others are heard, and its queue pair
// is there until then.
func TestForgetWaitsForNobody(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.nic.slow = true
		own := h.to.sharing.receives == nil // with them nothing is to come back
		h.to.Forget(0)
		if left := len(h.nic.pairs) == 2; left == own {
			t.Fatalf("%d queue pairs are left", len(h.nic.pairs))
		}
		for range 3 {
			if !h.hears(1) {
				t.Fatal("the other peer is not heard")
			}
		}
		h.nic.hurry()
		for range 3 {
			h.to.Poll(h.got)
		}
		if len(h.nic.pairs) != 1 || len(h.got.downs) != 0 || h.nic.lost != 0 || h.to.Arm() {
			t.Errorf("%d queue pairs, told %v, %d receives lost, or the engine may not sleep", len(h.nic.pairs), h.got.downs, h.nic.lost)
		}
	})
}

// TestReplaceWaitsForNobody: a connection that replaces another is taken when the receives
// of that have ended, as the turns go on; of the one that is replaced nothing is told.
func TestReplaceWaitsForNobody(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.nic.slow = true
		old := h.to.conns[0]
		join := h.connect(0)
		for range 3 {
			if err := join(); !errors.Is(err, link.ErrLater) || h.to.conns[0] != old {
				t.Fatalf("while the last connection ends another one comes to %v", err)
			}
			if !h.hears(1) {
				t.Fatal("the other peer is not heard")
			}
		}
		h.nic.hurry()
		h.to.Poll(h.got)
		if err := join(); err != nil {
			t.Fatal(err)
		}
		if !h.hears(0) || len(h.got.downs) != 0 || len(h.nic.pairs) != 2 {
			t.Errorf("told is %v; %d queue pairs", h.got.downs, len(h.nic.pairs))
		}
	})
}

// TestReplaceGivesUp: after a while the connection is not taken; the old one's end is told
// when it comes.
func TestReplaceGivesUp(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.nic.slow, h.nic.mute = true, true
		old := h.to.conns[0]
		join := h.connect(0)
		if err := join(); !errors.Is(err, link.ErrLater) {
			t.Fatal(err)
		}
		old.replaced = old.replaced.Add(-2 * settleWithin)
		if err := join(); !errors.Is(err, errUnsettled) || h.to.conns[0] != old {
			t.Fatalf("it is asked for ever: %v", err)
		}
		old.sunk = old.sunk.Add(-2 * settleWithin) // a device that never says so
		h.nic.hurry()
		for range 3 {
			h.to.Poll(h.got)
		}
		if len(h.got.downs) != 1 || h.to.conns[0] != nil {
			t.Errorf("told is %v", h.got.downs)
		}
	})
}

// TestEndAmongCompletions: a connection that ends among thousands of others' completions
// lets a turn do no more of them than others; what had come before it ended is handed over
// all the same, and shared receives come back.
func TestEndAmongCompletions(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		for range 12 * pollBudget {
			h.nic.done = append(h.nic.done, completion{id: idOf(77<<tagBits, 1)}) // of a connection that is gone
		}
		h.sent[0]++
		h.from[0].Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: 1}}})
		h.from[0].Poll(newDiary())
		h.from[0].Forget(0) // its socket ends
		h.to.watch.look = true
		turns := 0
		for ; len(h.got.downs) == 0; turns++ {
			before := h.to.stats.Completions
			h.to.Poll(h.got)
			if n := h.to.stats.Completions - before; n > 2*pollBudget {
				t.Fatalf("a turn handles %d completions", n)
			}
			if turns > 1000 {
				t.Fatal("the connection does not end")
			}
		}
		if len(h.got.heads) != 1 || h.nic.lost != 0 {
			t.Errorf("%d frames came, want 1; %d receives are lost", len(h.got.heads), h.nic.lost)
		}
	})
}

// TestPassage: what was there is handled when a look that began later has left nothing, or
// when as much has been as the queue held and had given out before.
func TestPassage(t *testing.T) {
	l := &Link{nic: &fakeNIC{}, cq: completionQueue{stash: make([]completion, 5), handled: 100, dry: 7}}
	l.stats.Polls = 7
	p := l.here()
	whole := l.nic.queueDepth() + 5
	for what, x := range map[string]struct {
		dry     uint64
		handled int
		want    bool
	}{
		"nothing since":           {7, 0, false},
		"a look that began later": {8, 0, true},
		"all but one":             {7, whole - 1, false},
		"all":                     {7, whole, true},
	} {
		l.cq.dry, l.cq.handled = x.dry, 100+uint64(x.handled)
		if l.passed(p) != x.want {
			t.Errorf("%s: it is passed: %v", what, !x.want)
		}
	}
}

// TestEndAmongEndlessCompletions: a connection ends, though others' completions come faster
// than they are handled, for ever.
func TestEndAmongEndlessCompletions(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.to.conns[0].fail(errSocket)
		most := h.nic.queueDepth()/pollBudget + 10
		for turns := 0; len(h.got.downs) == 0; turns++ {
			for len(h.nic.done) < 3*pollBudget {
				h.nic.done = append(h.nic.done, completion{id: idOf(77<<tagBits, 1)}) // of a connection that is gone
			}
			if h.to.Poll(h.got); turns > most {
				t.Fatalf("the connection has not ended in %d turns", turns)
			}
		}
	})
}

// TestLastReceive: a connection ends with the last of its receives, and not before.
func TestLastReceive(t *testing.T) {
	h := newHub(t, "own", 2)
	h.nic.slow = true
	h.to.conns[0].fail(errSocket)
	h.to.Poll(h.got)
	for left := len(h.nic.untold); left > 0; left-- {
		for range 3 {
			h.to.Poll(h.got)
		}
		if len(h.got.downs) > 0 {
			t.Fatalf("its end is told, and %d receives have not ended", left)
		}
		h.nic.untold[0]()
		h.nic.untold = h.nic.untold[1:]
	}
	for range 3 {
		h.to.Poll(h.got)
	}
	if len(h.got.downs) != 1 {
		t.Errorf("told is %v", h.got.downs)
	}
}

// lastWord notes what is known of an operation when the end of its connection is told.
type lastWord struct {
	*diary
	known bool
}

func (w *lastWord) Down(peer link.Peer, err error) {
	_, w.known = w.dones[7]
	w.diary.Down(peer, err)
}

// TestEndsBeforeDown: the operations of a connection that ends are told to have ended before
// it is.
func TestEndsBeforeDown(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		w := &lastWord{diary: x.sa}
		if err := x.a.Write(0, 7, link.Ref{Region: 1, Len: 1 << 20}, x.register(2<<20, 1<<20), 0); err != nil {
			t.Fatal(err)
		}
		x.a.conns[0].fail(errSocket)
		for range 10 {
			x.a.Poll(w)
		}
		if len(w.downs) != 1 || !w.known {
			t.Errorf("the end is told %d times, that of its write before: %v", len(w.downs), w.known)
		}
	})
}

// leaver forgets a peer whose frame it refuses.
type leaver struct {
	*diary
	l *Link
}

func (v *leaver) Deliver(peer link.Peer, _ *wire.Header, _ []byte) error {
	v.l.Forget(peer)
	return errors.New("refused")
}

// TestRefusedAndForgotten: a connection that is forgotten while a frame of it is handed over,
// and that the frame would end, keeps nobody awake.
func TestRefusedAndForgotten(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		x.b.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: 1}}})
		x.b.Poll(x.sb)
		for range 10 {
			x.a.Poll(&leaver{x.sa, x.a})
		}
		if x.a.failed != 0 || x.a.Arm() || len(x.sa.downs) != 0 {
			t.Errorf("%d connections have failed, told is %v, or the engine may not sleep", x.a.failed, x.sa.downs)
		}
	})
}

// TestLeftByTurns: of connections that are forgotten all at once a turn destroys few.
func TestLeftByTurns(t *testing.T) {
	const peers = 3 * endStep
	h := newHub(t, "shared", peers)
	h.nic.slow = true
	for i := range peers {
		h.to.Forget(link.Peer(i))
	}
	h.nic.hurry()
	h.nic.died = 0
	for turns := 0; h.nic.died < peers; turns++ {
		before := h.nic.died
		h.to.Poll(h.got)
		if n := h.nic.died - before; n > endStep {
			t.Fatalf("a turn destroys %d queue pairs", n)
		}
		if turns > 100 {
			t.Fatalf("%d of %d are destroyed", h.nic.died, peers)
		}
	}
}

// TestPairThatDoesNotEnd: a connection whose queue pair cannot be moved to the error state,
// since it is gone already, is not waited for: of its receives nothing is told any more.
func TestPairThatDoesNotEnd(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.nic.deaf = true
		h.nic.faults = []fault{{what: "queue pair error", pair: h.to.conns[0].local.pair}}
		h.nic.tellFault()
		h.to.watch.look = true
		for turns := 0; len(h.got.downs) == 0; turns++ {
			if h.to.Poll(h.got); turns > 100 {
				t.Fatal("the connection does not end")
			}
		}
		if !h.hears(1) || len(h.nic.pairs) != 1 || h.to.failed != 0 {
			t.Errorf("the other peer is not heard, or %d queue pairs are left", len(h.nic.pairs))
		}
	})
}

// TestAllEndAtOnce: when all connections end, a turn moves few of their queue pairs to the
// error state, and destroys few; all are told in the end.
func TestAllEndAtOnce(t *testing.T) {
	const peers = 40
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, peers)
		h.nic.faults = []fault{{what: "port error", port: true}}
		h.nic.tellFault()
		h.to.watch.look = true
		h.nic.died, h.nic.slow = 0, true
		sunk := func() (n int) {
			for _, p := range h.nic.pairs {
				if p.failed {
					n++
				}
			}
			return n
		}
		for sunk() < peers {
			before := sunk()
			h.to.Poll(h.got)
			if n := sunk() - before; n > endStep || n == 0 {
				t.Fatalf("a turn moves %d queue pairs to the error state", n)
			}
		}
		h.nic.hurry()
		for turns := 0; len(h.got.downs) < peers; turns++ {
			before := h.nic.died
			h.to.Poll(h.got)
			if n := h.nic.died - before; n > endStep {
				t.Fatalf("a turn destroys %d queue pairs", n)
			}
			if turns > 1000 {
				t.Fatalf("%d of %d are told", len(h.got.downs), peers)
			}
		}
		if h.to.failed != 0 || len(h.nic.pairs) != 0 || h.to.Arm() {
			t.Errorf("%d connections have failed, %d queue pairs are there, or the engine may not sleep", h.to.failed, len(h.nic.pairs))
		}
	})
}

// TestJoinOfAGoneDevice: a connection that was made before the device was lost, and is
// handed over after that, is refused: nothing would tell of its end.
func TestJoinOfAGoneDevice(t *testing.T) {
	h := newHub(t, "own", 1)
	h.to.Forget(0)
	e, g := ends(t, h.from[0], h.to)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	h.nic.broken = unix.EIO
	h.to.Poll(h.got)
	fds := sockets(t)
	if err := h.to.Join(0, fds[0], g); !errors.Is(err, link.ErrBroken) || h.to.conns[0] != nil {
		t.Errorf("it is taken: %v", err)
	}
	if err := unix.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
}

// TestSlotsAreForAll: a peer that ends no requests does not keep others from being sent to;
// where there is no other it has all that there are.
func TestSlotsAreForAll(t *testing.T) {
	for peers, want := range map[int][]int{1: {sendSlots}, 3: {sendSlots / 2, sendSlots / 4}} {
		h := newHub(t, "own", peers)
		held := make([][]int32, len(want))
		for i, most := range want {
			c := h.to.conns[i]
			for s := c.slot(); s >= 0; s = c.slot() {
				held[i] = append(held[i], s)
			}
			if len(held[i]) != most || c.held != most {
				t.Errorf("%d peers: peer %d has %d slots (%d), want %d", peers, i, len(held[i]), c.held, most)
			}
		}
		if peers > len(want) {
			var got *diary
			for i := range h.from {
				f := []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: 1}}}
				if h.to.Post(link.Peer(i), f) != 1 {
					t.Fatal("the frame was not taken")
				}
				h.to.Poll(h.got)
				got = newDiary()
				h.from[i].Poll(got)
				if came := len(got.heads) == 1; came != (i >= len(want)) {
					t.Errorf("a frame for peer %d comes: %v", i, came)
				}
			}
		}
		for i := range want {
			for _, s := range held[i] {
				h.to.conns[i].freeSlot(s)
			}
			h.to.Poll(h.got)
			got := newDiary()
			if h.from[i].Poll(got); len(got.heads) != min(1, peers-1) {
				t.Errorf("%d frames come to peer %d when it has slots again", len(got.heads), i)
			}
		}
		for range 3 { // what was not signalled is done
			h.to.Poll(h.got)
		}
		for i, c := range h.to.conns {
			if c.held < 0 || c.held > 1 {
				t.Errorf("%d peers: peer %d has %d slots", peers, i, c.held)
			}
		}
	}
}

// TestSlotsComeBack: who has which slots is right after all that takes and gives some.
func TestSlotsComeBack(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		c := x.a.conns[0]
		right := func(what string) {
			t.Helper()
			if c.held != sendSlots-len(x.a.stage.free) {
				t.Fatalf("%s: it has %d slots, and %d of %d are left", what, c.held, len(x.a.stage.free), sendSlots)
			}
		}
		k := x.register(2<<20, 1<<20)
		frames := 0
		for i := range uint64(40) {
			n := 1 + i*97%slotBytes
			do := map[string]func() bool{
				"a read":  func() bool { return x.a.Read(0, i, link.Ref{Region: 1, Len: n}, k) == nil },
				"a write": func() bool { return x.a.Write(0, i, link.Ref{Region: 1, Len: n}, k, i%3<<40) == nil },
				"a cast":  func() bool { return x.a.Cast(0, x.mem[:n], k, 0) },
				"a frame": func() bool {
					frames++
					return x.a.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: uint64(frames), Length: uint32(n)}, Payload: link.Ref{Region: 1, Len: n}}}) == 1
				},
			}
			for what, start := range do {
				if !start() {
					t.Fatal(what, "is not taken")
				}
				right(what)
				x.a.Poll(x.sa)
				right(what)
				x.b.Poll(x.sb)
			}
		}
		x.until("all frames", func() bool { return len(x.sb.heads) == frames })
		for range 10 {
			x.a.Poll(x.sa)
		}
		if right("at the end"); c.held > signalEvery {
			t.Errorf("%d slots are not given back", c.held)
		}
	})
}
