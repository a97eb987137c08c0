package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/ether"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// The engines of lossy jobs are connected by the link ether, over a network that loses,
// repeats and reorders packets. Large payloads go by pairs of Unix sockets, which like TCP
// lose nothing, or are pulled by packets. The operations and failures of a seed are those of
// its job of another kind.

// lossy is the network of a lossy job.
type lossy struct {
	net     *ether.Net
	links   []*ether.Link
	pull    bool
	encrypt bool
	packet  int  // size of a packet
	over    bool // the links are closed: their time passes by itself
}

// LossyCoverage counts events of lossy jobs.
type LossyCoverage struct {
	Coverage
	Packets, Lost, Doubled, Delayed int    // of the network
	SentAgain, Repeated             uint64 // packets that links have sent again, and that had come already
	Pulls, AskedAgain               uint64
	Socket                          uint64 // bytes by sockets
}

// etherSilence is the virtual time after which a link gives up a peer that acknowledges
// nothing.
const etherSilence = 10e9

// newLossy returns the job of a seed of another kind, over a lossy network.
func newLossy(w *world) *world {
	rng := rand.New(rand.NewPCG(w.seed, 20))
	w.caching, w.net.parts, w.net.lendRNG = false, false, nil // the caches and lent memory are of ports
	for _, p := range w.net.ports {
		p.lends = false
	}
	w.net.lossy = &lossy{
		net: &ether.Net{
			Rand: rng, Loss: []float64{0.01, 0.05, 0.1}[rng.IntN(3)], Twice: 0.05, Late: 0.1, Delay: 1 + rng.Int64N(100_000),
			PerByte: rng.Int64N(10), Queue: []int64{2_000_000, 50_000_000}[rng.IntN(2)],
		},
		pull: rng.IntN(2) == 0, encrypt: rng.IntN(2) == 0, packet: []int{1232, 1402, 1452, 8952}[rng.IntN(4)],
	}
	return w
}

// RunLossy runs the job of a seed like Run, and RunLossyAgain like RunAgain, over a lossy
// network. With a trace, the completions and packets are recorded.
func RunLossy(seed uint64, t *Trace) (LossyCoverage, error) { return runLossy(newWorld(seed), t) }

// RunLossyAgain runs a job whose ranks attach again.
func RunLossyAgain(seed uint64, t *Trace) (LossyCoverage, error) { return runLossy(newAgain(seed), t) }

func runLossy(w *world, t *Trace) (c LossyCoverage, err error) {
	w = newLossy(w)
	w.net.trace = t
	c.Coverage, err = w.job()
	x := w.net.lossy
	c.Packets, c.Lost, c.Doubled, c.Delayed = x.net.Sent, x.net.Lost, x.net.Doubled, x.net.Delayed
	for _, l := range x.links {
		s := l.Stats()
		c.SentAgain, c.Repeated, c.Pulls, c.AskedAgain, c.Socket = c.SentAgain+s.Lost, c.Repeated+s.Repeated, c.Pulls+s.Pulls, c.AskedAgain+s.AskedAgain, c.Socket+s.SocketIn
	}
	w.net.note("packets", 0, uint64(c.Packets), uint64(c.Lost), uint64(c.Doubled), uint64(c.Delayed))
	return c, err
}

// link makes the link of a pod.
func (x *lossy) link(n *network, self link.Peer) (link.Link, error) {
	sockets, err := tcp.New(nil, len(n.ports))
	if err != nil {
		return nil, err
	}
	l, err := ether.NewSimulated(ether.Config{
		Self: self, Peers: len(n.ports), Pull: x.pull, Encrypt: x.encrypt, Stream: sockets, Log: slog.New(slog.DiscardHandler),
		Silence: etherSilence, Clock: x.clock,
	}, nil, x.net)
	if err != nil {
		return nil, err
	}
	x.links = append(x.links, l)
	return l, nil
}

// connected reports a connection to the engine of a pod. Of the two reports of a connection,
// the first makes it.
func (w *world) connected(self, peer linkPeer, generation int) {
	x := w.net.lossy
	if x == nil {
		w.engines[self].Connected(peer, generation)
		return
	}
	if self > peer {
		return
	}
	if err := w.meet(self, peer); err != nil {
		w.net.fault = fmt.Sprintf("connecting pods %d and %d: %v", self, peer, err)
	}
}

// meet connects two links.
func (w *world) meet(a, b linkPeer) error {
	x := w.net.lossy
	ea, eb, err := ether.MeetSimulated(x.links[a], x.links[b], x.packet)
	if err != nil {
		return err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket pair: %w", err)
	}
	w.joined(a, b, fds[0], ea)
	w.joined(b, a, fds[1], eb)
	return nil
}

func (w *world) joined(self, peer linkPeer, fd int, e *ether.Endpoint) {
	l := w.net.lossy.links[self]
	w.engines[self].Joined(peer, func() error { return l.Join(peer, fd, e) }, func() {
		_ = unix.Close(fd) // nothing was sent
		_ = e.Close()      // never fails
	})
}

// cut breaks a connection of a lossy network at both ends.
func (x *lossy) cut(a, b link.Peer) {
	if x != nil && len(x.links) > int(max(a, b)) {
		x.links[a].Break(b)
		x.links[b].Break(a)
	}
}

// clock returns the time of a lossy network. A link that closes waits for it.
func (x *lossy) clock() int64 {
	if x.over {
		x.net.Now += 1_000_000
	}
	return x.net.Now
}

// close makes the time pass by itself.
func (x *lossy) close() {
	if x != nil {
		x.over = true
	}
}

// pass sets the time of a lossy network.
func (x *lossy) pass(now int64) {
	if x != nil {
		x.net.Now = now + 1
	}
}
