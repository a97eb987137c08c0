package ether

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// TestFaster: pulls are chosen if the median of their rates is more than a quarter higher.
func TestFaster(t *testing.T) {
	for _, x := range []struct {
		pull, socket [trialRounds]int64
		want         bool
	}{
		{[3]int64{100_000, 100_000, 100_000}, [3]int64{124_000, 124_000, 124_000}, false},
		{[3]int64{100_000, 100_000, 100_000}, [3]int64{126_000, 126_000, 126_000}, true},
		{[3]int64{9_000_000, 100_000, 90_000}, [3]int64{1, 126_000, 127_000}, true},
		{[3]int64{9_000_000, 9_000_000, 1}, [3]int64{126_000, 126_000, 126_000}, false},
		{[3]int64{1, 1, 1}, [3]int64{1, 1, 1}, false},
		{[3]int64{1, 1, 1}, [3]int64{100_000_000, 100_000_000, 100_000_000}, true},
	} {
		if got := faster(rateOf(x.pull[:]), rateOf(x.socket[:])); got != x.want {
			t.Errorf("pulls in %v, the socket in %v: pulls are chosen: %v", x.pull, x.socket, got)
		}
	}
}

// relay carries bytes between two sockets in virtual time, at a rate.
type relay struct {
	n       *Net
	fds     [2]int
	perByte int64
	last    int64
	kept    [2][]byte // read from a socket, and not yet written to the other
	passed  [2]int    // bytes from a socket
}

// newRelay returns a relay, and the sockets at its ends.
func newRelay(t testing.TB, n *Net, perByte int64) (r *relay, x, y int) {
	t.Helper()
	r = &relay{n: n, perByte: perByte, last: n.Now}
	var ends [2]int
	for i := range ends {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends[i], r.fds[i] = pair[0], pair[1]
	}
	t.Cleanup(r.close)
	return r, ends[0], ends[1]
}

func (r *relay) close() {
	for i, fd := range r.fds {
		if fd >= 0 {
			_ = unix.Close(fd) // nothing depends on it
		}
		r.fds[i] = -1
	}
}

// pass carries what the time since the last call permits.
func (r *relay) pass() {
	budget := int((r.n.Now - r.last) / r.perByte)
	r.last += int64(budget) * r.perByte
	for i, from := range r.fds {
		b := make([]byte, max(min(budget, 64<<10)-len(r.kept[i]), 0))
		if n, err := unix.Read(from, b); err == nil && n > 0 {
			r.kept[i] = append(r.kept[i], b[:n]...)
			r.passed[i] += n
		}
		if n, err := unix.Write(r.fds[1-i], r.kept[i]); err == nil {
			r.kept[i] = r.kept[i][n:]
		}
	}
}

// trialRig is two links over a simulated network that compare the ways of large payloads.
type trialRig struct {
	n     *Net
	sides [2]*side
	ends  [2]*Endpoint
	fds   [2]int
	joins [2]error // results of the last Join
	sinks [2]*linktest.Sink
	relay *relay
	pace  int64 // of a turn
}

// measuring returns a link of a simulated network that compares.
func measuring(t testing.TB, n *Net, self link.Peer, peers int) *side {
	t.Helper()
	s := &side{m: linktest.NewMemory(), peer: 1 - self}
	cfg := config(t, self, true)
	cfg.Peers, cfg.Measure, cfg.Clock = peers, true, func() int64 { return n.Now }
	var err error
	_ = cfg.Stream.Close() // it is for two pods, and has no connections
	if cfg.Stream, err = tcp.New(nil, peers); err != nil {
		t.Fatal(err)
	}
	if s.l, err = NewSimulated(cfg, s.m, n); err != nil {
		t.Fatal(err)
	}
	s.l.SetMemory(s.m)
	return s
}

func network(perByte int64) *Net {
	return &Net{Now: 1, Rand: rand.New(rand.NewPCG(5, 5)), Delay: 20_000, PerByte: perByte, Queue: 1e9}
}

// newTrialRig returns links with packets of a size, and with times for a byte by packets and by
// the socket.
func newTrialRig(t testing.TB, n *Net, packet int, socket int64) *trialRig {
	t.Helper()
	r := &trialRig{n: n, pace: max(500*socket, 5000)}
	for i := range r.sides {
		r.sides[i] = measuring(t, n, link.Peer(i), 2)
		r.sinks[i] = linktest.NewSink(r.sides[i].m)
	}
	r.meet(t, packet, socket)
	t.Cleanup(func() {
		for _, s := range r.sides {
			closeSimulated(t, n, s)
		}
	})
	return r
}

func (r *trialRig) meet(t testing.TB, packet int, socket int64) {
	t.Helper()
	var err error
	if r.ends[0], r.ends[1], err = MeetSimulated(r.sides[0].l, r.sides[1].l, packet); err != nil {
		t.Fatal(err)
	}
	r.relay, r.fds[0], r.fds[1] = newRelay(t, r.n, socket)
	r.joins = [2]error{link.ErrLater, link.ErrLater}
}

// turn lets both sides work, for the time of 500 bytes by the socket or more.
func (r *trialRig) turn() {
	for i, s := range r.sides {
		if errors.Is(r.joins[i], link.ErrLater) {
			r.joins[i] = s.l.Join(s.peer, r.fds[i], r.ends[i])
		}
		s.l.Poll(r.sinks[i])
	}
	r.relay.pass()
	r.n.Now += r.pace
}

// join runs until both sides have joined.
func (r *trialRig) join(t testing.TB) {
	t.Helper()
	for begun := r.n.Now; errors.Is(r.joins[0], link.ErrLater) || errors.Is(r.joins[1], link.ErrLater); {
		if r.turn(); r.n.Now-begun > 2*trialMost {
			t.Fatal("the trial does not end")
		}
	}
}

// reads reports whether a side pulls from the other.
func (r *trialRig) reads(i int) bool { return r.sides[i].l.PeerCaps(r.sides[i].peer).Read }

// check checks that both sides have joined with a choice, that they agree about what is
// registered, that nothing of the trial is left, and that frames and reads pass.
func (r *trialRig) check(t *testing.T, want bool) {
	t.Helper()
	for i, s := range r.sides {
		caps := s.l.PeerCaps(s.peer)
		if r.joins[i] != nil || caps.Read != want || caps.Register != r.reads(1-i) {
			t.Fatalf("pod %d: %v, %+v, want reads %v", i, r.joins[i], caps, want)
		}
		checkClean(t, s.l)
	}
	a, b := r.sides[0], r.sides[1]
	random := rand.New(rand.NewPCG(6, 6))
	forth, back := some(random, a.m), some(random, b.m)
	reads := []read(nil)
	if want {
		reads = someReads(t, random, a, b)
	}
	left, right := forth, back
	x, y := r.sinks[0], r.sinks[1]
	for begun := r.n.Now; x.Frames() < len(back) || y.Frames() < len(forth) || len(x.Ends()) < len(reads); {
		left, right = left[a.l.Post(1, left):], right[b.l.Post(0, right):]
		if r.turn(); r.n.Now-begun > 600e9 || x.DownError() != nil || y.DownError() != nil {
			t.Fatalf("after the trial: %v, %v", x, y)
		}
	}
	linktest.Compare(t, a.m, forth, y)
	linktest.Compare(t, b.m, back, x)
	checkReads(t, 0, reads, a, b, x, true)
}

// checkClean checks that a link has nothing of trials.
func checkClean(t testing.TB, l *Link) {
	t.Helper()
	if x := &l.reads.trials; len(x.list) > 0 || x.reader != nil || x.zeros != nil || x.scrap != nil || len(l.reads.keys) > 0 || l.reads.pulls != 0 || l.reads.asked != 0 {
		t.Errorf("a trial has left %d trials, %d keys, %d pulls, %d bytes of credit", len(x.list), len(l.reads.keys), l.reads.pulls, l.reads.asked)
	}
}

// TestTrial: each side takes the faster way, and the paths have the rates of both.
func TestTrial(t *testing.T) {
	for name, x := range map[string]struct {
		packets, socket int64
		pulls           bool
	}{
		"packets": {1, 10, true}, "socket": {10, 1, false}, "equal": {4, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTrialRig(t, network(x.packets), 8952, x.socket)
			r.join(t)
			for i, s := range r.sides {
				list := s.l.Paths()
				chosen, other := &list[0], &list[1]
				if !x.pulls {
					chosen, other = other, chosen
				}
				if chosen.Peers != 1 || other.Peers != 0 || list[0].Rate == 0 || list[1].Rate == 0 || x.pulls != (list[0].Rate > list[1].Rate*5/4) {
					t.Errorf("pod %d has the paths %+v", i, list)
				}
				if most := 3*trialHead + trialWarm + trialRounds*trialRound + trialHead*2*(1+trialRounds); r.relay.passed[i] > most {
					t.Errorf("pod %d has sent %d bytes by the socket, want at most %d", i, r.relay.passed[i], most)
				}
				if s.l.stats.PartsOut*uint64(bodyLeast) > trialSpent {
					t.Errorf("pod %d has sent %d fragments", i, s.l.stats.PartsOut)
				}
				if s.l.stats.Pulls != 0 || s.l.stats.PulledBytes != 0 {
					t.Errorf("pod %d counts the pulls of the trial: %d", i, s.l.stats.Pulls)
				}
			}
			r.check(t, x.pulls)
		})
	}
}

// TestTrialOfASlowNetwork: a pair whose measurements take too long uses TCP.
func TestTrialOfASlowNetwork(t *testing.T) {
	r := newTrialRig(t, network(1), 8952, 500)
	r.join(t)
	r.check(t, false)
}

// TestTrialOfSmallPackets: a pair with packets of 1500 bytes uses TCP without a measurement.
func TestTrialOfSmallPackets(t *testing.T) {
	r := newTrialRig(t, network(1), 1452, 100)
	r.join(t)
	for i, n := range r.relay.passed {
		if n != 2*trialHead {
			t.Errorf("pod %d has sent %d bytes, want an offer and the end", i, n)
		}
	}
	r.check(t, false)
}

// TestTrialWithLoss: if pulls lose fragments, or nothing of them comes, payloads go by TCP.
func TestTrialWithLoss(t *testing.T) {
	for name, every := range map[string]int{"some": 20, "all": 1} {
		t.Run(name, func(t *testing.T) {
			n := network(1)
			seen, over := 0, false
			n.Drop = func(packet []byte) bool {
				if kindOf(packet) == kindPart {
					seen++
				}
				return !over && kindOf(packet) == kindPart && seen%every == 0
			}
			r := newTrialRig(t, n, 8952, 100)
			r.join(t)
			over = true
			r.check(t, false)
		})
	}
}

// TestTrialWithOlderPeers: a peer whose offer has no flag of a trial is joined at once, and its
// payloads go by TCP.
func TestTrialWithOlderPeers(t *testing.T) {
	n := network(1)
	a, b := measuring(t, n, 0, 2), measuring(t, n, 1, 2)
	b.l.cfg.Measure = false
	meet(t, a, b, 8952)
	for _, s := range []*side{a, b} {
		if caps := s.l.PeerCaps(s.peer); caps.Read || caps.Register {
			t.Errorf("the peer of pod %d is read with %+v", s.peer, caps)
		}
		checkClean(t, s.l)
		closeSimulated(t, n, s)
	}
}

// TestTrialsInTurn: of several connections of a sidecar one is measured at a time, and a peer that
// answers nothing does not keep the others from it.
func TestTrialsInTurn(t *testing.T) {
	const peers = 4
	n := network(1)
	hub := measuring(t, n, 0, peers)
	joins := make([]error, peers)
	var steps []func()
	for p := link.Peer(1); p < peers; p++ {
		s := measuring(t, n, p, peers)
		e, f, err := MeetSimulated(hub.l, s.l, 8952)
		if err != nil {
			t.Fatal(err)
		}
		wire, x, y := newRelay(t, n, 10)
		if p == 1 {
			if _, err := unix.Write(y, said(trialOffer, 8900, 7)); err != nil {
				t.Fatal(err)
			}
		}
		joins[p] = link.ErrLater
		theirs := link.ErrLater
		sink := linktest.NewSink(s.m)
		steps = append(steps, func() {
			if errors.Is(joins[p], link.ErrLater) {
				joins[p] = hub.l.Join(p, x, e)
			}
			if p != 1 && errors.Is(theirs, link.ErrLater) { // pod 1 answers nothing
				theirs = s.l.Join(0, y, f)
			}
			s.l.Poll(sink)
			wire.pass()
		})
		t.Cleanup(func() {
			if p == 1 {
				_ = unix.Close(y) // nothing depends on it
			}
			closeSimulated(t, n, s)
		})
	}
	sink := linktest.NewSink(hub.m)
	for slices.ContainsFunc(joins, func(err error) bool { return errors.Is(err, link.ErrLater) }) {
		for _, step := range steps {
			step()
		}
		hub.l.Poll(sink)
		if n.Now += 20_000; joins[2] == nil && joins[3] == nil {
			n.Now += 1_000_000
		}
		busy := 0
		for _, x := range hub.l.reads.trials.list {
			if x.started != 0 && !x.done && !x.lost {
				busy++
			}
		}
		if busy > 1 {
			t.Fatalf("%d connections are measured at once", busy)
		}
	}
	if !errors.Is(joins[1], errTrialLate) || joins[2] != nil || joins[3] != nil {
		t.Errorf("the ends are %v", joins)
	}
	for p := link.Peer(2); p < peers; p++ {
		if !hub.l.PeerCaps(p).Read {
			t.Errorf("pod %d is not pulled from", p)
		}
	}
	checkClean(t, hub.l)
	closeSimulated(t, n, hub)
}

// TestTrialWaits: a trial that waits for another one's measurements for too long chooses TCP.
func TestTrialWaits(t *testing.T) {
	r := newTrialRig(t, network(1), 8952, 10)
	r.sides[0].l.reads.trials.reader = new(trial) // never ends
	r.join(t)
	r.sides[0].l.reads.trials.reader = nil
	if r.reads(0) || !r.reads(1) || !r.sides[0].l.PeerCaps(1).Register || r.sides[1].l.PeerCaps(0).Register {
		t.Errorf("the sides have %+v and %+v", r.sides[0].l.PeerCaps(1), r.sides[1].l.PeerCaps(0))
	}
}

// hostileTrial is a link whose peer is the test.
type hostileTrial struct {
	n  *Net
	s  *side
	e  *Endpoint
	fd int // of the link
	me int // of the test
}

func newHostileTrial(t testing.TB) *hostileTrial {
	t.Helper()
	h := &hostileTrial{n: network(1)}
	h.s = measuring(t, h.n, 0, 2)
	other := measuring(t, h.n, 1, 2)
	var err error
	if h.e, _, err = MeetSimulated(h.s.l, other.l, 8952); err != nil {
		t.Fatal(err)
	}
	_, h.fd, h.me = newPair(t)
	t.Cleanup(func() {
		_ = unix.Close(h.me) // a test may have closed it
		closeSimulated(t, h.n, h.s)
		closeSimulated(t, h.n, other)
	})
	return h
}

// newPair returns a pair of sockets.
func newPair(t testing.TB) (pair [2]int, x, y int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return pair, pair[0], pair[1]
}

// said returns a message of a trial.
func said(kind byte, number uint32, key uint64) []byte {
	b := make([]byte, trialHead)
	b[0] = kind
	binary.LittleEndian.PutUint32(b[4:], number)
	binary.LittleEndian.PutUint64(b[8:], key)
	return b
}

// run joins until an end, while it reads all that the link sends, and returns the end and the
// number of bytes.
func (h *hostileTrial) run() (read int, err error) {
	sink, buf := linktest.NewSink(h.s.m), make([]byte, 1<<20)
	for err = link.ErrLater; errors.Is(err, link.ErrLater); h.n.Now += 1_000_000 {
		err = h.s.l.Join(1, h.fd, h.e)
		h.s.l.Poll(sink)
		if n, e := unix.Read(h.me, buf); e == nil {
			read += n
		}
	}
	return read, err
}

// TestHostileTrials: a peer that breaks the rules of a trial ends the connection, gets no more
// than a trial's bytes, and leaves nothing.
func TestHostileTrials(t *testing.T) {
	offer, most := said(trialOffer, 8900, 7), trialWarm+trialRounds*trialRound+16*trialHead
	wants := slices.Concat(offer, said(trialWant, trialWarm, 0), said(trialWant, trialRound, 0), said(trialWant, trialRound, 0), said(trialWant, trialRound, 0))
	for name, x := range map[string]struct {
		sends []byte
		want  error
	}{
		"a want before the offer":   {said(trialWant, trialWarm, 0), link.ErrProtocol},
		"an end before the offer":   {said(trialDone, 0, 0), link.ErrProtocol},
		"two offers":                {slices.Concat(offer, offer), link.ErrProtocol},
		"an offer without a key":    {said(trialOffer, 8900, 0), link.ErrProtocol},
		"a large first want":        {slices.Concat(offer, said(trialWant, trialRound, 0)), link.ErrProtocol},
		"a want of all":             {slices.Concat(offer, said(trialWant, 1<<32-1, 0)), link.ErrProtocol},
		"five wants":                {slices.Concat(wants, said(trialWant, trialRound, 0)), link.ErrProtocol},
		"data without a want":       {slices.Concat(offer, said(trialData, trialRound, 0)), link.ErrProtocol},
		"an end of another kind":    {slices.Concat(offer, said(trialDone, 2, 0)), link.ErrProtocol},
		"a want after the end":      {slices.Concat(offer, said(trialDone, 0, 0), said(trialWant, trialWarm, 0)), link.ErrProtocol},
		"two ends":                  {slices.Concat(offer, said(trialDone, 0, 0), said(trialDone, 0, 0)), link.ErrProtocol},
		"an unknown message":        {slices.Concat(offer, said(9, 0, 0)), link.ErrProtocol},
		"no more after the offer":   {offer, errTrialLate},
		"no more after the wants":   {wants, errTrialLate},
		"half of a message":         {offer[:8], errTrialLate},
		"an end without the data":   {slices.Concat(offer, said(trialDone, 1, 0)), errTrialLate},
		"nothing":                   {nil, errTrialLate},
		"the end of the connection": {nil, link.ErrBroken},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostileTrial(t)
			if _, err := unix.Write(h.me, x.sends); err != nil {
				t.Fatal(err)
			}
			if name == "the end of the connection" {
				_ = unix.Shutdown(h.me, unix.SHUT_WR) // Join reports the end
			}
			n, err := h.run()
			if !errors.Is(err, x.want) || n > most {
				t.Errorf("%v after %d bytes, want %v and at most %d", err, n, x.want, most)
			}
			if h.s.l.conns[1] != nil || len(h.s.l.list) > 0 || len(h.s.l.table) > 0 {
				t.Error("the connection is still there")
			}
			checkClean(t, h.s.l)
			if next := h.s.l.Prepare(1); next.Offer()[1]&flagMeasure != 0 {
				t.Error("the next connection has another trial")
			}
			if _, err := unix.FcntlInt(uintptr(h.fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
				t.Errorf("the socket is not closed: %v", err)
			}
		})
	}
}

// TestTrialBound: a peer that pulls in a trial all the time gets no more than the trial's bytes.
func TestTrialBound(t *testing.T) {
	h := newHostileTrial(t)
	if err := h.s.l.Join(1, h.fd, h.e); !errors.Is(err, link.ErrLater) {
		t.Fatal(err)
	}
	c := h.s.l.reads.trials.list[0].c
	ask := make([]byte, askBytes)
	le := binary.LittleEndian
	le.PutUint32(ask, 1)
	le.PutUint64(ask[8:], h.s.l.reads.trials.list[0].reg.Key)
	le.PutUint64(ask[24:], 0x7f)
	le.PutUint32(ask[32:], 8000)
	le.PutUint32(ask[36:], 7*8000)
	sink := linktest.NewSink(h.s.m)
	for range 1000 {
		c.onAsk(ask)
		h.s.l.Poll(sink)
		h.n.Now += 1000
	}
	if n := h.s.l.stats.PartsOut * 8000; n == 0 || n > trialSpent || c.err != nil {
		t.Errorf("%d bytes were sent, want at most %d: %v", n, trialSpent, c.err)
	}
	if err := errors.Join(h.e.Close(), unix.Close(h.fd)); err != nil {
		t.Error(err)
	}
}

// TestTrialAbandoned: an Endpoint that is closed in its trial, or whose link is, leaves nothing, and
// the socket stays the caller's.
func TestTrialAbandoned(t *testing.T) {
	for _, turns := range []int{1, 20, 200} {
		for name, end := range map[string]func(r *trialRig) error{
			"endpoint": func(r *trialRig) error { return r.ends[0].Close() },
			"twice":    func(r *trialRig) error { return errors.Join(r.ends[0].Close(), r.ends[0].Close()) },
			"link": func(r *trialRig) error {
				r.sides[0].l.abandon(r.sides[0].l.reads.trials.list[0])
				return r.ends[0].Close()
			},
		} {
			t.Run(name, func(t *testing.T) {
				r := newTrialRig(t, network(1), 8952, 10)
				for range turns {
					r.turn()
				}
				if !errors.Is(r.joins[0], link.ErrLater) {
					t.Fatalf("the trial is over: %v", r.joins[0])
				}
				if err := errors.Join(end(r), unix.Close(r.fds[0])); err != nil {
					t.Error(err)
				}
				r.joins[0] = io.EOF
				checkClean(t, r.sides[0].l)
				if len(r.sides[0].l.list) != 0 {
					t.Error("the connection is still there")
				}
				r.relay.close() // the other side sees the end
				for errors.Is(r.joins[1], link.ErrLater) {
					r.turn()
				}
				if !errors.Is(r.joins[1], link.ErrBroken) {
					t.Errorf("the other side: %v", r.joins[1])
				}
				// The next connection has no trial, because one side has seen a failure.
				r.meet(t, 8952, 10)
				r.join(t)
				r.check(t, false)
			})
		}
	}
}

// FuzzTrial: whatever a peer writes into the socket in a trial, it gets no more than a trial's bytes,
// and the link keeps nothing.
func FuzzTrial(f *testing.F) {
	offer := said(trialOffer, 8900, 7)
	f.Add([]byte(nil))
	f.Add(slices.Concat(offer, said(trialWant, trialWarm, 0), said(trialWant, trialRound, 0), said(trialDone, 0, 0)))
	f.Add(slices.Concat(offer, said(trialData, trialWarm, 0), make([]byte, trialWarm), said(trialDone, 1, 0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := newHostileTrial(t)
		if _, err := unix.Write(h.me, b); err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		if err := unix.Shutdown(h.me, unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		n, err := h.run()
		if n > trialWarm+trialRounds*trialRound+16*trialHead {
			t.Errorf("%d bytes were sent", n)
		}
		if err == nil {
			return // it has sent all that was wanted
		}
		if !errors.Is(err, link.ErrProtocol) && !errors.Is(err, link.ErrBroken) || len(h.s.l.list) > 0 {
			t.Errorf("%v, and %d connections are left", err, len(h.s.l.list))
		}
		checkClean(t, h.s.l)
	})
}
