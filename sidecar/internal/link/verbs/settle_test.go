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

// hub is a link with several peers over devices made of memory; each peer is a link with
// one.
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

// connect joins a peer's endpoint, and returns the result of the hub's Join.
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

// hears makes peer i send a frame, and reports whether one Poll of the hub delivers exactly
// one frame.
func (h *hub) hears(i int) bool {
	h.t.Helper()
	h.sent[i]++
	if h.from[i].Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: h.sent[i]}}}) != 1 {
		h.t.Fatal("the frame was not accepted")
	}
	h.from[i].Poll(newDiary())
	before := len(h.got.heads)
	h.to.Poll(h.got)
	return len(h.got.heads) == before+1
}

// TestForgetDoesNotWait checks that a forgotten connection is not waited for, however
// long its device takes to report the ends of its receives: other peers are served, and
// its queue pair exists until then.
func TestForgetDoesNotWait(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.nic.slow = true
		own := h.to.sharing.receives == nil // its own receives need not complete
		h.to.Forget(0)
		if left := len(h.nic.pairs) == 2; left == own {
			t.Fatalf("%d queue pairs are left", len(h.nic.pairs))
		}
		for range 3 {
			if !h.hears(1) {
				t.Fatal("the other peer is not served")
			}
		}
		h.nic.speedUp()
		for range 3 {
			h.to.Poll(h.got)
		}
		if len(h.nic.pairs) != 1 || len(h.got.downs) != 0 || h.nic.lost != 0 || h.to.Arm() {
			t.Errorf("%d queue pairs, reported %v, %d receives lost, or the engine may not sleep", len(h.nic.pairs), h.got.downs, h.nic.lost)
		}
	})
}

// TestReplaceDoesNotWait checks that a connection that replaces another is accepted when
// the old one's receives have ended, while turns continue, and that the end of the old
// one is not reported.
func TestReplaceDoesNotWait(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.nic.slow = true
		old := h.to.conns[0]
		join := h.connect(0)
		for range 3 {
			if err := join(); !errors.Is(err, link.ErrLater) || h.to.conns[0] != old {
				t.Fatalf("while the last connection ends another one ends with %v", err)
			}
			if !h.hears(1) {
				t.Fatal("the other peer is not served")
			}
		}
		h.nic.speedUp()
		h.to.Poll(h.got)
		if err := join(); err != nil {
			t.Fatal(err)
		}
		if !h.hears(0) || len(h.got.downs) != 0 || len(h.nic.pairs) != 2 {
			t.Errorf("reported %v; %d queue pairs", h.got.downs, len(h.nic.pairs))
		}
	})
}

// TestReplaceTimesOut checks that after a while the new connection is refused, and the
// end of the old one is reported when it comes.
func TestReplaceTimesOut(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.nic.slow, h.nic.mute = true, true
		old := h.to.conns[0]
		join := h.connect(0)
		if err := join(); !errors.Is(err, link.ErrLater) {
			t.Fatal(err)
		}
		old.replacedAt = old.replacedAt.Add(-2 * settleTimeout)
		if err := join(); !errors.Is(err, errUnsettled) || h.to.conns[0] != old {
			t.Fatalf("the link asks for another turn for ever: %v", err)
		}
		old.errorSince = old.errorSince.Add(-2 * settleTimeout) // a device that never reports it
		h.nic.speedUp()
		for range 3 {
			h.to.Poll(h.got)
		}
		if len(h.got.downs) != 1 || h.to.conns[0] != nil {
			t.Errorf("reported %v", h.got.downs)
		}
	})
}

// TestEndAmongCompletions checks that the end of a connection among thousands of
// completions of others does not make a turn longer, that messages that arrived before
// the end are handed over, and that shared receives are posted again.
func TestEndAmongCompletions(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		for range 12 * pollBudget {
			h.nic.done = append(h.nic.done, completion{id: idOf(77<<tagBits, 1)}) // of a lost connection
		}
		h.sent[0]++
		h.from[0].Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: 1}}})
		h.from[0].Poll(newDiary())
		h.from[0].Forget(0) // its socket ends
		h.to.watch.check = true
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
			t.Errorf("%d frames received, want 1; %d receives are lost", len(h.got.heads), h.nic.lost)
		}
	})
}

// TestPassage checks that a passage is passed when a later poll has emptied the queue, or
// when as many completions have been handled as the queue and the stash held.
func TestPassage(t *testing.T) {
	l := &Link{nic: &fakeNIC{}, cq: completionQueue{stash: make([]completion, 5), handled: 100, emptyAt: 7}}
	l.stats.Polls = 7
	p := l.markQueue()
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
		l.cq.emptyAt, l.cq.handled = x.dry, 100+uint64(x.handled)
		if l.passed(p) != x.want {
			t.Errorf("%s: it is passed: %v", what, !x.want)
		}
	}
}

// TestEndAmongEndlessCompletions checks that a connection ends even if completions of
// others arrive faster than they are handled, for ever.
func TestEndAmongEndlessCompletions(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.to.conns[0].fail(errSocket)
		most := h.nic.queueDepth()/pollBudget + 10
		for turns := 0; len(h.got.downs) == 0; turns++ {
			for len(h.nic.done) < 3*pollBudget {
				h.nic.done = append(h.nic.done, completion{id: idOf(77<<tagBits, 1)}) // of a lost connection
			}
			if h.to.Poll(h.got); turns > most {
				t.Fatalf("the connection has not ended in %d turns", turns)
			}
		}
	})
}

// TestLastReceive checks that a connection ends with the last of its receives, and not
// before.
func TestLastReceive(t *testing.T) {
	h := newHub(t, "own", 2)
	h.nic.slow = true
	h.to.conns[0].fail(errSocket)
	h.to.Poll(h.got)
	for left := len(h.nic.delayed); left > 0; left-- {
		for range 3 {
			h.to.Poll(h.got)
		}
		if len(h.got.downs) > 0 {
			t.Fatalf("its end is reported, but %d receives have not ended", left)
		}
		h.nic.delayed[0]()
		h.nic.delayed = h.nic.delayed[1:]
	}
	for range 3 {
		h.to.Poll(h.got)
	}
	if len(h.got.downs) != 1 {
		t.Errorf("reported %v", h.got.downs)
	}
}

// lastWord records the state of an operation when the end of its connection is reported.
type lastWord struct {
	*diary
	known bool
}

func (w *lastWord) Down(peer link.Peer, err error) {
	_, w.known = w.dones[7]
	w.diary.Down(peer, err)
}

// TestEndsBeforeDown checks that the ends of a connection's operations are reported
// before its own.
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
			t.Errorf("the end is reported %d times, that of its write before: %v", len(w.downs), w.known)
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

// TestRefusedAndForgotten checks that a connection that is forgotten during a frame that
// would end it does not keep the engine awake.
func TestRefusedAndForgotten(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		x.b.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: 1}}})
		x.b.Poll(x.sb)
		for range 10 {
			x.a.Poll(&leaver{x.sa, x.a})
		}
		if x.a.failed != 0 || x.a.Arm() || len(x.sa.downs) != 0 {
			t.Errorf("%d connections have failed, reported %v, or the engine may not sleep", x.a.failed, x.sa.downs)
		}
	})
}

// TestClosedByTurns checks that a turn destroys few of many connections that are
// forgotten at once.
func TestClosedByTurns(t *testing.T) {
	const peers = 3 * endsPerTurn
	h := newHub(t, "shared", peers)
	h.nic.slow = true
	for i := range peers {
		h.to.Forget(link.Peer(i))
	}
	h.nic.speedUp()
	h.nic.died = 0
	for turns := 0; h.nic.died < peers; turns++ {
		before := h.nic.died
		h.to.Poll(h.got)
		if n := h.nic.died - before; n > endsPerTurn {
			t.Fatalf("a turn destroys %d queue pairs", n)
		}
		if turns > 100 {
			t.Fatalf("%d of %d are destroyed", h.nic.died, peers)
		}
	}
}

// TestPairThatDoesNotEnd checks that a connection whose queue pair does not exist any
// more, and so cannot be moved to the error state, is not waited for: the ends of its
// receives will not be reported.
func TestPairThatDoesNotEnd(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, 2)
		h.nic.deaf = true
		h.nic.faults = []fault{{what: "queue pair error", pair: h.to.conns[0].local.pair}}
		h.nic.ring()
		h.to.watch.check = true
		for turns := 0; len(h.got.downs) == 0; turns++ {
			if h.to.Poll(h.got); turns > 100 {
				t.Fatal("the connection does not end")
			}
		}
		if !h.hears(1) || len(h.nic.pairs) != 1 || h.to.failed != 0 {
			t.Errorf("the other peer is not served, or %d queue pairs are left", len(h.nic.pairs))
		}
	})
}

// TestAllEndAtOnce checks that when all connections end, a turn moves few of their queue
// pairs to the error state, and destroys few, and that all ends are reported.
func TestAllEndAtOnce(t *testing.T) {
	const peers = 40
	bothWays(t, func(t *testing.T, receives string) {
		h := newHub(t, receives, peers)
		h.nic.faults = []fault{{what: "port error", port: true}}
		h.nic.ring()
		h.to.watch.check = true
		h.nic.died, h.nic.slow = 0, true
		errorSince := func() (n int) {
			for _, p := range h.nic.pairs {
				if p.failed {
					n++
				}
			}
			return n
		}
		for errorSince() < peers {
			before := errorSince()
			h.to.Poll(h.got)
			if n := errorSince() - before; n > endsPerTurn || n == 0 {
				t.Fatalf("a turn moves %d queue pairs to the error state", n)
			}
		}
		h.nic.speedUp()
		for turns := 0; len(h.got.downs) < peers; turns++ {
			before := h.nic.died
			h.to.Poll(h.got)
			if n := h.nic.died - before; n > endsPerTurn {
				t.Fatalf("a turn destroys %d queue pairs", n)
			}
			if turns > 1000 {
				t.Fatalf("%d of %d are reported", len(h.got.downs), peers)
			}
		}
		if h.to.failed != 0 || len(h.nic.pairs) != 0 || h.to.Arm() {
			t.Errorf("%d connections have failed, %d queue pairs exist, or the engine may not sleep", h.to.failed, len(h.nic.pairs))
		}
	})
}

// TestJoinOfALostDevice checks that a connection that was made before the device was
// lost, and is joined after that, is refused: no event would report its end.
func TestJoinOfALostDevice(t *testing.T) {
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
		t.Errorf("it is accepted: %v", err)
	}
	if err := unix.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
}

// TestSlotsAreForAll checks that a peer that completes no requests does not prevent sends
// to others, and that a single peer may use all slots.
func TestSlotsAreForAll(t *testing.T) {
	for peers, want := range map[int][]int{1: {sendSlots}, 3: {sendSlots / 2, sendSlots / 4}} {
		h := newHub(t, "own", peers)
		held := make([][]int32, len(want))
		for i, most := range want {
			c := h.to.conns[i]
			for s := c.allocSlot(); s >= 0; s = c.allocSlot() {
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
					t.Fatal("the frame was not accepted")
				}
				h.to.Poll(h.got)
				got = newDiary()
				h.from[i].Poll(got)
				if received := len(got.heads) == 1; received != (i >= len(want)) {
					t.Errorf("a frame for peer %d arrives: %v", i, received)
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
				t.Errorf("%d frames arrive at peer %d when it has slots again", len(got.heads), i)
			}
		}
		for range 3 { // completes unsignalled requests
			h.to.Poll(h.got)
		}
		for i, c := range h.to.conns {
			if c.held < 0 || c.held > 1 {
				t.Errorf("%d peers: peer %d has %d slots", peers, i, c.held)
			}
		}
	}
}

// TestSlotsComeBack checks the count of slots after all operations that use and release
// them.
func TestSlotsComeBack(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		c := x.a.conns[0]
		right := func(what string) {
			t.Helper()
			if c.held != sendSlots-len(x.a.stage.free) {
				t.Fatalf("%s: it has %d slots, and %d of %d are free", what, c.held, len(x.a.stage.free), sendSlots)
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
					t.Fatal(what, "is not accepted")
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
			t.Errorf("%d slots are not released", c.held)
		}
	})
}
