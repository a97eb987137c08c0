//go:build offload && etherguest

package ether

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// The bottleneck of these tests. The rate is what an emulated processor can fill with
// packets that it authenticates.
const (
	narrowRate  = "10mbit"
	narrowQueue = "64kb"
)

// meter is a sink that counts.
type meter struct {
	bytes uint64
	reads int // that have ended without an error
	err   error
}

func (m *meter) Deliver(_ link.Peer, _ *wire.Header, payload []byte) error {
	m.bytes += wire.HeaderBytes + uint64(len(payload))
	return nil
}

func (m *meter) Place(_ link.Peer, h *wire.Header) ([]byte, error) {
	return nil, fmt.Errorf("a payload of %d bytes goes by TCP", h.Length)
}
func (m *meter) Placed(link.Peer) error      { return nil }
func (m *meter) Written(link.Peer, uint64)   {}
func (m *meter) Delivered(link.Peer, uint64) {}
func (m *meter) Down(_ link.Peer, err error) { m.err = err }
func (m *meter) Done(_ link.Peer, _ uint64, err error) {
	if m.reads++; err != nil {
		m.err = err
	}
}

// rest sleeps until one of the links has something to do.
func rest(links ...*Link) {
	var fds []unix.PollFd
	for _, l := range links {
		if l.Arm() {
			return
		}
		fds = append(fds, unix.PollFd{Fd: int32(l.FD()), Events: unix.POLLIN})
	}
	_, _ = unix.Poll(fds, 10) // EINTR: it is called again
}

// bulk is a TCP connection that sends all the time.
type bulk struct {
	got  atomic.Uint64
	stop func()
}

// newBulk starts a flow from one namespace to the other, whose address is addressB.
func newBulk(t testing.TB, from, to *namespace) *bulk {
	t.Helper()
	var l net.Listener
	var c net.Conn
	var err error
	to.in(func() { l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", addressB+":0") })
	if err != nil {
		t.Fatal(err)
	}
	from.in(func() { c, err = net.Dial("tcp", l.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b := &bulk{}
	ended := make(chan struct{}, 2)
	go func() {
		buf := make([]byte, 64<<10)
		for err := error(nil); err == nil; {
			_, err = c.Write(buf)
		}
		ended <- struct{}{}
	}()
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := s.Read(buf)
			b.got.Add(uint64(n))
			if err != nil {
				break
			}
		}
		ended <- struct{}{}
	}()
	b.stop = func() {
		for _, x := range []io.Closer{c, s, l} {
			_ = x.Close() // ends the goroutines
		}
		<-ended
		<-ended
	}
	return b
}

// contest is ether's traffic in a fairness test.
type contest struct {
	a, b    *side
	x, y    meter
	src     link.Key
	dst     [2]link.Ref
	frames  []*link.Frame
	started int // reads
	pull    bool
	small   bool
}

const readBytes = 1 << 20

// newContest connects two namespaces, and makes memory for the traffic.
func newContest(t testing.TB, na, nb *namespace, pull, small bool) *contest {
	t.Helper()
	c := &contest{pull: pull, small: small}
	c.a, c.b = inNamespaces(t, na, nb, func(_ testing.TB, _ *namespace, c *Config) { c.Pull = true })
	x, y := connected(t, na, nb)
	join(t, c.a, c.b, x, y)
	var err error
	if c.src, err = c.a.l.Register(c.a.m.Fill(readBytes, 1)); err != nil {
		t.Fatal(err)
	}
	for i := range c.dst {
		c.dst[i] = c.b.m.NewRegion(readBytes)
	}
	payload := c.a.m.Fill(200, 2)
	for range 64 {
		c.frames = append(c.frames, &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: 200}, Payload: payload})
	}
	return c
}

// step lets both sides work, and keeps them busy.
func (c *contest) step(t testing.TB) {
	t.Helper()
	for c.pull && c.started < c.y.reads+len(c.dst) {
		if err := c.b.l.Read(0, uint64(c.started), c.dst[c.started%len(c.dst)], c.src); err != nil {
			t.Fatal(err)
		}
		c.started++
	}
	n := 0
	if c.small {
		n = c.a.l.Post(1, c.frames)
	}
	if c.a.l.Poll(&c.x)+c.b.l.Poll(&c.y)+n == 0 {
		rest(c.a.l, c.b.l)
	}
	if c.x.err != nil || c.y.err != nil {
		t.Fatalf("the connection has ended: %v, %v", c.x.err, c.y.err)
	}
}

// got returns the bytes that have arrived.
func (c *contest) got() uint64 { return c.y.bytes + c.b.l.stats.PulledBytes }

// TestShapedFair sends by ether and by one TCP connection through a bottleneck, three times,
// and checks that ether gets between a half and twice of what TCP gets.
func TestShapedFair(t *testing.T) {
	for name, kind := range map[string]struct{ pull, small bool }{"pull": {true, false}, "frames": {false, true}} {
		t.Run(name, func(t *testing.T) {
			ether, other := uint64(0), uint64(0)
			for range 3 {
				e, o := share(t, kind.pull, kind.small)
				ether, other = ether+e, other+o
			}
			if t.Logf("ether has %.2f of TCP", float64(ether)/float64(other)); ether < other/2 || ether > 2*other {
				t.Error("want between 0.5 and 2")
			}
		})
	}
}

// share returns the bytes that ether and a TCP connection bring through a bottleneck in 10
// seconds, after two in which they settle.
func share(t *testing.T, pull, small bool) (ether, other uint64) {
	t.Helper()
	na, nb := joined(t, "veth", 1500)
	na.bottleneck(t, "eth", narrowRate, narrowQueue)
	c := newContest(t, na, nb, pull, small)
	flow := newBulk(t, na, nb)
	defer flow.stop()
	const settle, measured = 2 * time.Second, 10 * time.Second
	for begun := time.Now(); time.Since(begun) < settle; {
		c.step(t)
	}
	begun, e, o := time.Now(), c.got(), flow.got.Load()
	for time.Since(begun) < measured {
		c.step(t)
	}
	took := time.Since(begun)
	ether, other = c.got()-e, flow.got.Load()-o
	s, r := c.a.l.Stats(), c.b.l.Stats()
	t.Logf("ether %s, TCP %s, of %s: ether has %.2f of TCP; %d packets out, %d sent again, %d blocks asked for again, %d repeated; %s",
		rate(ether, took), rate(other, took), narrowRate, float64(ether)/float64(other), s.PacketsOut, s.Lost, r.AskedAgain, r.Repeated, na.tc(t, "-s qdisc show dev eth"))
	return ether, other
}

// TestShapedIncast reads from eight peers at once through a bottleneck in front of the
// reader, and checks that all reads end, and that the reader's socket drops nothing.
func TestShapedIncast(t *testing.T) {
	const senders, each = 8, 512 << 10
	hub := newNamespace(t)
	spaces := hub.star(t, 1+senders)
	hub.bottleneck(t, "port0", narrowRate, narrowQueue)
	sides, addresses := make([]*side, 1+senders), make([]string, 1+senders)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("10.99.0.%d:7077", i+1)
	}
	for i, n := range spaces {
		s := &side{m: linktest.NewMemory()}
		cfg := config(t, link.Peer(i), false)
		cfg.Peers, cfg.Pull, cfg.Listen, cfg.Addresses = len(sides), true, netip.MustParseAddrPort(addresses[i]), addresses
		var err error
		if cfg.Stream, err = tcp.New(nil, cfg.Peers); err != nil {
			t.Fatal(err)
		}
		n.in(func() { s.l, err = New(cfg, nil) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.l.Close() }) // nothing depends on it
		s.l.SetMemory(s.m)
		sides[i] = s
	}
	reader := sides[0]
	var keys []link.Key
	for i, s := range sides[1:] {
		x, y := loopback(t)
		joinPeers(t, reader, s, 0, link.Peer(i+1), x, y)
		k, err := s.l.Register(s.m.Fill(each, uint64(i)))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	links := []*Link{reader.l}
	for _, s := range sides[1:] {
		links = append(links, s.l)
	}
	var m meter
	ends := make([]time.Duration, senders)
	begun := time.Now()
	for i, k := range keys {
		if err := reader.l.Read(link.Peer(i+1), uint64(i), reader.m.NewRegion(each), k); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < senders; {
		work := 0
		for _, l := range links {
			work += l.Poll(&m)
		}
		for ; n < m.reads; n++ {
			ends[n] = time.Since(begun)
		}
		if m.err != nil {
			t.Fatal(m.err)
		}
		if work == 0 {
			rest(links...)
		}
	}
	took, s := time.Since(begun), reader.l.Stats()
	t.Logf("%d reads of %d KiB at %s, the first after %v; %d blocks asked for again, %d fragments repeated; the socket has dropped %d packets; %s",
		senders, each>>10, rate(senders*each, took), ends[0], s.AskedAgain, s.Repeated, spaces[0].dropped(t), hub.tc(t, "-s qdisc show dev port0"))
	if n := spaces[0].dropped(t); n != 0 {
		t.Errorf("the reader's socket has dropped %d packets: its credit is more than its buffer holds", n)
	}
}
