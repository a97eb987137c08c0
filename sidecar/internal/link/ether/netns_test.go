//go:build offload

package ether

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// namespace is a network namespace, with a thread in it.
type namespace struct {
	fd   int
	h    *netlink.Handle
	work chan func()
	over chan struct{}
}

// newNamespace makes a network namespace, which ends with the test. It needs root.
func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{work: make(chan func()), over: make(chan struct{})}
	made := make(chan error)
	go func() {
		defer close(n.over)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		made <- err
		for do := range n.work {
			do()
		}
	}()
	if err := <-made; err != nil {
		t.Fatalf("a network namespace: %v (it needs root)", err)
	}
	t.Cleanup(func() {
		close(n.work)
		<-n.over
		_ = unix.Close(n.fd) // the namespace ends in any case
	})
	n.in(func() {
		var err error
		if n.h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(n.h.Close)
	return n
}

// in calls do on the namespace's thread.
func (n *namespace) in(do func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); do() }
	<-done
}

// up names an interface of the namespace eth0, and gives it an address.
func (n *namespace) up(t testing.TB, name, address string, mtu int) {
	t.Helper()
	l, err := n.h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	ip, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.h.LinkSetMTU(l, mtu), n.h.AddrAdd(l, ip), n.h.LinkSetUp(l)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

const addressA, addressB = "10.99.0.1", "10.99.0.2"

// joined are two namespaces that a network of a kind joins.
func joined(t testing.TB, kind string, mtu int) (a, b *namespace) {
	t.Helper()
	a, b = newNamespace(t), newNamespace(t)
	veth := func(in *namespace, name, peer string, to *namespace) {
		t.Helper()
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, PeerName: peer}
		if err := in.h.LinkAdd(v); err != nil {
			t.Fatal(err)
		}
		p, err := in.h.LinkByName(peer)
		if err == nil {
			err = in.h.LinkSetNsFd(p, to.fd)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	switch kind {
	case "veth":
		veth(a, "eth", "peer", b)
		a.up(t, "eth", addressA+"/24", mtu)
		b.up(t, "peer", addressB+"/24", mtu)
	case "bridge":
		m := newNamespace(t)
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br", MTU: mtu}}
		if err := m.h.LinkAdd(br); err != nil {
			t.Fatal(err)
		}
		for i, side := range []*namespace{a, b} {
			port := fmt.Sprintf("port%d", i)
			veth(m, port, "eth", side)
			p, err := m.h.LinkByName(port)
			if err == nil {
				err = errors.Join(m.h.LinkSetMaster(p, br), m.h.LinkSetUp(p))
			}
			if err != nil {
				t.Fatal(err)
			}
			side.up(t, "eth", []string{addressA, addressB}[i]+"/24", mtu)
		}
		if err := m.h.LinkSetUp(br); err != nil {
			t.Fatal(err)
		}
	case "macvlan":
		m := newNamespace(t)
		other := newNamespace(t)
		veth(m, "parent", "other", other)
		other.up(t, "other", "10.98.0.1/24", mtu) // the parent has a carrier only if its other end is up
		p, err := m.h.LinkByName("parent")
		if err == nil {
			err = errors.Join(m.h.LinkSetMTU(p, mtu), m.h.LinkSetUp(p))
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, side := range []*namespace{a, b} {
			name := fmt.Sprintf("mac%d", i)
			v := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: p.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}
			if err := m.h.LinkAdd(v); err != nil {
				t.Fatal(err)
			}
			x, err := m.h.LinkByName(name)
			if err == nil {
				err = m.h.LinkSetNsFd(x, side.fd)
			}
			if err != nil {
				t.Fatal(err)
			}
			side.up(t, name, []string{addressA, addressB}[i]+"/24", mtu)
		}
	}
	return a, b
}

// connected returns a TCP connection between the namespaces, as descriptors.
func connected(t testing.TB, a, b *namespace) (x, y int) {
	t.Helper()
	var l net.Listener
	var err error
	a.in(func() { l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", addressA+":0") })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var c net.Conn
	b.in(func() { c, err = net.Dial("tcp", l.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return duplicate(t, s), duplicate(t, c)
}

// over returns the harness of links by UDP over a network, whose packets have a size; bad
// makes it worse.
func over(kind string, mtu, packet int, bad func(testing.TB, *Link)) linktest.Harness {
	return overBy(kind, mtu, packet, func(testing.TB, *namespace, *Config) {}, bad)
}

// overBy is over with links whose configuration change changes.
func overBy(kind string, mtu, packet int, change func(testing.TB, *namespace, *Config), bad func(testing.TB, *Link)) linktest.Harness {
	return func(t *testing.T) *linktest.Pair {
		na, nb := joined(t, kind, mtu)
		return between(t, na, nb, mtu, packet, change, bad)
	}
}

// between returns a pair of links between two namespaces that are joined.
func between(t *testing.T, na, nb *namespace, mtu, packet int, change func(testing.TB, *namespace, *Config), bad func(testing.TB, *Link)) *linktest.Pair {
	t.Helper()
	a, b := inNamespaces(t, na, nb, change)
	if bad != nil {
		bad(t, a.l)
		bad(t, b.l)
	}
	p := meeting(t, na, nb, a, b, func(t testing.TB, got int) {
		t.Helper()
		if bad == nil && got != packet {
			t.Errorf("packets have %d bytes with the MTU %d, want %d", got, mtu, packet)
		}
	})
	p.Lossy = bad != nil
	return p
}

// meeting connects links in two namespaces. It calls sized with the size of the packets of
// each side after each connection.
func meeting(t *testing.T, na, nb *namespace, a, b *side, sized func(testing.TB, int)) *linktest.Pair {
	t.Helper()
	connect := func(t *testing.T) {
		t.Helper()
		x, y := connected(t, na, nb)
		join(t, a, b, x, y)
		for _, s := range []*side{a, b} {
			sized(t, s.l.conns[s.peer].bodyMax+headBytes+tagBytes)
		}
	}
	connect(t)
	return &linktest.Pair{
		A: linktest.Side{Link: a.l, Memory: a.m, Peer: 1}, B: linktest.Side{Link: b.l, Memory: b.m, Peer: 0},
		Pass: func() {}, Join: connect, Break: func(*testing.T) { a.l.Break(1) },
	}
}

// inNamespaces returns links in two namespaces, whose configurations change changes.
func inNamespaces(t testing.TB, na, nb *namespace, change func(testing.TB, *namespace, *Config)) (a, b *side) {
	t.Helper()
	sides := [2]*side{}
	for i, n := range []*namespace{na, nb} {
		address := []string{addressA, addressB}[i]
		s := &side{m: linktest.NewMemory(), peer: link.Peer(1 - i)}
		cfg := config(t, link.Peer(i), false)
		cfg.Listen, cfg.Addresses = netip.MustParseAddrPort(address+":7077"), []string{addressA + ":7077", addressB + ":7077"}
		change(t, n, &cfg)
		var err error
		n.in(func() { s.l, err = New(cfg, nil) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.l.Close(); err != nil {
				t.Error(err)
			}
		})
		s.l.SetMemory(s.m)
		sides[i] = s
	}
	return sides[0], sides[1]
}

// TestNetworks runs the suite between namespaces.
func TestNetworks(t *testing.T) {
	for _, kind := range []string{"veth", "bridge", "macvlan"} {
		for mtu, packet := range map[int]int{1450: 1402, 1500: 1452, 9000: 8952} {
			t.Run(fmt.Sprintf("%s/%d", kind, mtu), func(t *testing.T) { linktest.Run(t, over(kind, mtu, packet, nil)) })
		}
	}
	t.Run("veth/1450/bad", func(t *testing.T) { linktest.Run(t, over("veth", 1450, 0, worsen)) })
}

// TestFigures prints the round trip of 64 bytes and the rate of 1 MiB payloads by raw
// Ethernet, UDP and TCP over the same network, in the same run. It asserts nothing: the
// machine's other work decides the times.
func TestFigures(t *testing.T) {
	same := func(testing.TB, *Link) {}
	for _, kind := range []string{"veth", "bridge", "macvlan"} {
		for _, mtu := range []int{1500, 9000} {
			text := fmt.Sprintf("%s, MTU %d:", kind, mtu)
			na, nb := joined(t, kind, mtu)
			for _, c := range []struct {
				name string
				p    *linktest.Pair
			}{
				{"raw", overBy(kind, mtu, 0, byRaw, same)(t)}, {"UDP", over(kind, mtu, 0, same)(t)}, {"TCP", overTCP(t, na, nb)},
			} {
				text += fmt.Sprintf(" %s 64 bytes %v, 1 MiB %.1f GB/s", c.name, roundTrip(t, c.p), payloads(t, c.p))
				if c.name != "TCP" {
					text += ";"
				}
			}
			for name, change := range map[string]func(testing.TB, *namespace, *Config){"raw": byRaw, "UDP": func(testing.TB, *namespace, *Config) {}} {
				p := overBy(kind, mtu, 0, func(t testing.TB, n *namespace, cfg *Config) { change(t, n, cfg); cfg.Pull = true }, same)(t)
				text += fmt.Sprintf("; pulls by %s %.1f GB/s", name, pulls(t, p))
			}
			t.Log(text)
		}
	}
}

func overTCP(t *testing.T, na, nb *namespace) *linktest.Pair {
	t.Helper()
	var links [2]*tcp.Link
	var memory [2]*linktest.Memory
	x, y := connected(t, na, nb)
	for i, fd := range []int{x, y} {
		var err error
		memory[i] = linktest.NewMemory()
		if links[i], err = tcp.New(memory[i], 1); err != nil {
			t.Fatal(err)
		}
		if err := links[i].Attach(0, fd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = links[i].Close() }) // nothing depends on it
	}
	return &linktest.Pair{A: linktest.Side{Link: links[0], Memory: memory[0]}, B: linktest.Side{Link: links[1], Memory: memory[1]}, Pass: func() {}}
}

// echoes polls a side and sends each frame back, until stop.
func echoes(s linktest.Side, back []*link.Frame, stop chan struct{}, over chan struct{}) {
	defer close(over)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sink := linktest.NewSink(s.Memory)
	for n := 0; ; {
		select {
		case <-stop:
			return
		default:
		}
		if s.Link.Poll(sink); sink.Frames() > n {
			n = sink.Frames()
			send(s, back)
		}
	}
}

// roundTrip returns the first decile of the round trips of 64 bytes, both sides polling.
func roundTrip(t *testing.T, p *linktest.Pair) time.Duration {
	t.Helper()
	frame := []*link.Frame{{Head: wire.Header{Type: wire.Eager, Seq: 1, Length: 64}}}
	stop, ended := make(chan struct{}), make(chan struct{})
	go echoes(p.B, frame, stop, ended)
	sink := linktest.NewSink(p.A.Memory)
	times := make([]time.Duration, 3000)
	for i := range times {
		begun := time.Now()
		send(p.A, frame)
		for n := sink.Frames(); sink.Frames() == n; {
			p.A.Link.Poll(sink)
		}
		times[i] = time.Since(begun)
	}
	close(stop)
	<-ended
	slices.Sort(times)
	return times[len(times)/10]
}

// payloads returns the rate of the fastest of 50 frames of 1 MiB, in GB/s.
func payloads(t *testing.T, p *linktest.Pair) float64 {
	t.Helper()
	large := []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: 1, Length: 1 << 20}, Payload: p.A.Memory.Fill(1<<20, 1)}}
	answer := []*link.Frame{{Head: wire.Header{Type: wire.Eager, Seq: 1, Length: 8}}}
	stop, ended := make(chan struct{}), make(chan struct{})
	go echoes(p.B, answer, stop, ended)
	sink := linktest.NewSink(p.A.Memory)
	best := time.Hour
	for range 50 {
		begun := time.Now()
		send(p.A, large)
		for n := sink.Frames(); sink.Frames() == n; {
			p.A.Link.Poll(sink)
		}
		best = min(best, time.Since(begun))
	}
	close(stop)
	<-ended
	return float64(1<<20) / float64(best.Nanoseconds())
}

// pulls returns the rate of the fastest of 50 reads of 1 MiB, in GB/s.
func pulls(t *testing.T, p *linktest.Pair) float64 {
	t.Helper()
	pingPong(t, p, 20) // so that each side knows the size of the other's packets
	src, dst := p.B.Memory.Fill(1<<20, 1), p.A.Memory.NewRegion(1<<20)
	key, err := p.B.Link.(*Link).Register(src)
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go echoes(p.B, nil, stop, ended)
	sink := linktest.NewSink(p.A.Memory)
	best := time.Hour
	for i := range uint64(50) {
		begun := time.Now()
		if err := p.A.Link.(*Link).Read(p.A.Peer, i, dst, key); err != nil {
			t.Fatal(err)
		}
		for n := len(sink.Ends()); len(sink.Ends()) == n; {
			p.A.Link.Poll(sink)
		}
		best = min(best, time.Since(begun))
	}
	close(stop)
	<-ended
	if err := sink.Ends()[49]; err != nil {
		t.Fatal(err)
	}
	return float64(1<<20) / float64(best.Nanoseconds())
}
