//go:build offload

package ether

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// Of the BPF extensions of Linux (networking/filter.rst).
const (
	adProtocol = 0xfffff000 + 0
	adPktType  = 0xfffff000 + 4
	adRandom   = 0xfffff000 + 56
)

// interfaceOf returns the interface of a namespace.
func interfaceOf(t testing.TB, n *namespace) netlink.Link {
	t.Helper()
	list, err := n.h.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		if l.Attrs().Flags&net.FlagLoopback == 0 && l.Attrs().Flags&net.FlagUp != 0 {
			return l
		}
	}
	t.Fatal("the namespace has no interface that is up")
	return nil
}

// packetSocket makes a packet socket in a namespace, as the node's agent does. One frame of
// every 1/loss is dropped by its filter.
func packetSocket(t testing.TB, n *namespace, loss float64) int {
	t.Helper()
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: adProtocol},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 5, K: grant.EtherType},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: adPktType},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.PACKET_HOST},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: adRandom},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: uint32(loss * (1 << 32))},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	fd, err := -1, error(nil)
	do := func(what string, call func() error) {
		if err == nil {
			if err = call(); err != nil {
				err = fmt.Errorf("%s: %w", what, err)
			}
		}
	}
	i := interfaceOf(t, n)
	n.in(func() {
		do("socket", func() (err error) {
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			return err
		})
		do("filter", func() error {
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
		})
		do("lock", func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1) })
		do("outgoing", func() error { return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1) })
		do("buffer", func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20) })
		do("bind", func() error {
			return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(grant.EtherType), Ifindex: i.Attrs().Index})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// byRaw makes a link use raw Ethernet.
func byRaw(t testing.TB, n *namespace, cfg *Config) {
	t.Helper()
	cfg.Raw = &Raw{FD: packetSocket(t, n, 0)}
}

// byRawWithLoss is byRaw, and the kernel loses one frame of 20.
func byRawWithLoss(t testing.TB, n *namespace, cfg *Config) {
	t.Helper()
	cfg.Raw = &Raw{FD: packetSocket(t, n, 0.05)}
}

// TestRawNetworks runs the suite by raw Ethernet.
func TestRawNetworks(t *testing.T) {
	for _, kind := range []string{"veth", "bridge", "macvlan"} {
		for mtu, packet := range map[int]int{1450: 1402, 1500: 1452, 9000: 8952} {
			t.Run(fmt.Sprintf("%s/%d", kind, mtu), func(t *testing.T) { linktest.Run(t, overBy(kind, mtu, packet, byRaw, nil)) })
		}
	}
	pull := func(t testing.TB, n *namespace, cfg *Config) {
		t.Helper()
		byRaw(t, n, cfg)
		cfg.Pull, cfg.Encrypt = true, true
	}
	t.Run("veth/1500/pull", func(t *testing.T) { linktest.Run(t, overBy("veth", 1500, 1452, pull, nil)) })
	t.Run("veth/9000/pull", func(t *testing.T) { linktest.Run(t, overBy("veth", 9000, 8952, pull, nil)) })
	t.Run("veth/1500/pull/bad", func(t *testing.T) { linktest.Run(t, overBy("veth", 1500, 0, pull, worsen)) })
	t.Run("veth/1500/bad", func(t *testing.T) { linktest.Run(t, overBy("veth", 1500, 0, byRaw, worsen)) })
	t.Run("veth/9000/loss", func(t *testing.T) {
		linktest.Run(t, overBy("veth", 9000, 0, byRawWithLoss, func(testing.TB, *Link) {}))
	})
}

// TestRawLoss exchanges messages of mixed sizes while the kernel loses one frame of 20.
func TestRawLoss(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		exchangeWithLoss(t, overBy("veth", mtu, 0, byRawWithLoss, func(testing.TB, *Link) {})(t))
	}
}

// TestRawStrangers is TestStrangers by raw Ethernet.
func TestRawStrangers(t *testing.T) {
	meetStrangers(t, func(bad func(testing.TB, *Link)) *linktest.Pair { return overBy("veth", 1500, 0, byRaw, bad)(t) })
}

// stranger sends frames with any bytes to an interface: from a socket of the type SOCK_RAW.
type stranger struct {
	t    *testing.T
	fd   int
	from int // interface
}

func newStranger(t *testing.T, n *namespace) *stranger {
	t.Helper()
	s := &stranger{t: t, from: interfaceOf(t, n).Attrs().Index}
	var err error
	n.in(func() { s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(s.fd) }) // nothing depends on it
	return s
}

// send sends a frame from a forged source address.
func (s *stranger) send(to net.HardwareAddr, ethertype uint16, payload []byte) {
	s.t.Helper()
	frame := binary.BigEndian.AppendUint16(append(bytes.Clone(to), 2, 0, 0, 0, 0, 99), ethertype)
	if err := unix.Sendto(s.fd, append(frame, payload...), 0, &unix.SockaddrLinklayer{Ifindex: s.from}); err != nil {
		s.t.Fatal(err)
	}
}

// TestRawFrame compares a frame on the network with the contract (PROTOCOL.md §2.4), and with
// the addresses of the interfaces.
func TestRawFrame(t *testing.T) {
	na, nb := joined(t, "veth", 1500)
	p := between(t, na, nb, 1500, 1452, byRaw, nil)
	pingPong(t, p, 10)
	tap, err := -1, error(nil)
	nb.in(func() {
		tap, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(networkOrder(grant.EtherType)))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tap)
	c := p.A.Link.(*Link).conns[1]
	send(p.A, []*link.Frame{{Head: wire.Header{Type: wire.Eager, Seq: 1, Length: 8}}})
	frame := make([]byte, 2000)
	n, err := unix.Read(tap, frame)
	if err != nil {
		t.Fatal(err)
	}
	packet := headBytes + prefixBytes + wire.HeaderBytes + 8 + tagBytes
	want := slices.Concat(interfaceOf(t, nb).Attrs().HardwareAddr, interfaceOf(t, na).Attrs().HardwareAddr, []byte{0x88, 0xb5, byte(packet), 0})
	want = append(binary.LittleEndian.AppendUint32(want, c.remote), kindStream, 0, 0, 0)
	if n != 14+headRaw+packet || !bytes.HasPrefix(frame, want) {
		t.Errorf("the frame of %d bytes begins with %x, want %d and %x", n, frame[:len(want)], 14+headRaw+packet, want)
	}
}

// TestRawSystemCalls checks that a small frame takes one system call to send, and that the
// packets of a turn take one together.
func TestRawSystemCalls(t *testing.T) {
	const rounds, many = 1000, 60
	p := overBy("veth", 1500, 1452, byRaw, nil)(t)
	count := func() (calls, packets uint64) {
		a, b := p.A.Link.(*Link).Stats(), p.B.Link.(*Link).Stats()
		return a.Sends + b.Sends, a.PacketsOut + b.PacketsOut
	}
	callsBefore, packetsBefore := count()
	pingPong(t, p, rounds)
	calls, all := count()
	calls, all = calls-callsBefore, all-packetsBefore
	// A side that has no processor for some milliseconds acknowledges by a packet of its own.
	if calls > all || all > 2*rounds+rounds/2 {
		t.Errorf("%d frames took %d calls, of %d packets", 2*rounds, calls, all)
	}
	packets := p.A.Link.(*Link).Stats()
	var frames []*link.Frame
	for i := range many { // four packets
		frames = append(frames, &link.Frame{Head: wire.Header{Type: wire.Eager, Seq: uint64(i + 1), Length: 8}})
	}
	send(p.A, frames)
	after := p.A.Link.(*Link).Stats()
	if after.Sends-packets.Sends != 1 || after.PacketsOut-packets.PacketsOut < 3 {
		t.Errorf("%d packets of a turn took %d calls", after.PacketsOut-packets.PacketsOut, after.Sends-packets.Sends)
	}
}

// TestRawForeignFrames sends frames of strangers to a connection in use, and checks that each
// is counted and dropped, that the filter holds the others back, and that the frames of the
// peer arrive.
func TestRawForeignFrames(t *testing.T) {
	na, nb := joined(t, "veth", 1500)
	p := between(t, na, nb, 1500, 1452, byRaw, nil)
	l := p.B.Link.(*Link)
	to := interfaceOf(t, nb).Attrs().HardwareAddr
	for _, side := range []*namespace{na, nb} { // frames that exceed a slot
		if err := side.h.LinkSetMTU(interfaceOf(t, side), 9000); err != nil {
			t.Fatal(err)
		}
	}
	s := newStranger(t, na)
	session := make([]byte, 100)
	binary.LittleEndian.PutUint32(session[headRaw:], l.conns[0].session)
	forged := bytes.Clone(session)
	binary.LittleEndian.PutUint16(forged, 60)
	forged[headRaw+8] = 200 // a counter that has not come
	sized := func(size uint16, n int) []byte {
		b := make([]byte, n)
		binary.LittleEndian.PutUint16(b, size)
		return b
	}
	other := bytes.Clone(to)
	other[5] ^= 1
	none := Stats{}
	for _, c := range []struct {
		name      string
		to        net.HardwareAddr
		ethertype uint16
		payload   []byte
		want      Stats // what is added
	}{
		{"forged", to, grant.EtherType, forged, Stats{PacketsIn: 1, Forged: 1}},
		{"of no connection", to, grant.EtherType, sized(60, 100), Stats{PacketsIn: 1, Odd: 1}},
		{"without a size", to, grant.EtherType, []byte{1}, Stats{Odd: 1}},
		{"of no bytes", to, grant.EtherType, sized(0, 46), Stats{Odd: 1}},
		{"longer than the frame", to, grant.EtherType, sized(47, 48), Stats{Odd: 1}},
		{"short", to, grant.EtherType, sized(20, 46), Stats{PacketsIn: 1, Odd: 1}},
		{"cut", to, grant.EtherType, sized(1452, 4000), Stats{Odd: 1}},
		{"to all", net.HardwareAddr{255, 255, 255, 255, 255, 255}, grant.EtherType, forged, none},
		{"to another address", other, grant.EtherType, forged, none},
		{"of another type", to, 0x88b6, forged, none},
	} {
		before := l.Stats()
		s.send(c.to, c.ethertype, c.payload)
		l.receive(nil) // veth has delivered the frame
		after := l.Stats()
		got := Stats{PacketsIn: after.PacketsIn - before.PacketsIn, Odd: after.Odd - before.Odd, Forged: after.Forged - before.Forged}
		if got != c.want {
			t.Errorf("%s: counted as %+v, want %+v", c.name, got, c.want)
		}
	}
	pingPong(t, p, 10)
}

// bothWays sends frames in both directions and polls both sides until all have come, those
// that were lost too.
func bothWays(t *testing.T, p *linktest.Pair) {
	t.Helper()
	a, b := linktest.NewSink(p.A.Memory), linktest.NewSink(p.B.Memory)
	const n = 10
	for i := range n {
		f := []*link.Frame{{Head: wire.Header{Type: wire.Eager, Seq: uint64(i + 1), Length: 8}}}
		send(p.A, f)
		send(p.B, f)
	}
	for a.Frames() < n || b.Frames() < n {
		p.A.Link.Poll(a)
		p.B.Link.Poll(b)
		if a.DownError() != nil || b.DownError() != nil {
			t.Fatalf("the connection has ended: %v, %v", a, b)
		}
	}
}

// TestRawRingOverflows fills the ring while the link does not poll, and checks that the
// frames that were dropped are counted, and that the connection works.
func TestRawRingOverflows(t *testing.T) {
	na, nb := joined(t, "veth", 9000)
	p := between(t, na, nb, 9000, 8952, byRaw, nil)
	l := p.B.Link.(*Link)
	slots := l.out.carrier.(*raw).slots()
	s := newStranger(t, na)
	for range slots + 100 {
		s.send(interfaceOf(t, nb).Attrs().HardwareAddr, grant.EtherType, []byte{40, 0, 45: 0})
	}
	bothWays(t, p)
	if x := l.Stats(); x.Dropped < 100 || x.Dropped > 200 || x.Odd < uint64(slots) {
		t.Errorf("of %d frames for %d slots %d are dropped and %d are odd", slots+100, slots, x.Dropped, x.Odd)
	}
}

// readableIn reports whether a descriptor is readable within some milliseconds.
func readableIn(t *testing.T, fd, ms int) bool {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
}

// TestRawSleeps checks that the descriptor is not readable after a Poll without work, and
// readable when a frame comes.
func TestRawSleeps(t *testing.T) {
	p := overBy("veth", 1500, 1452, byRaw, nil)(t)
	b := p.B.Link.(*Link)
	sink := linktest.NewSink(p.B.Memory)
	readable := func(ms int) bool { return readableIn(t, b.FD(), ms) }
	a := linktest.NewSink(p.A.Memory)
	idle := func() {
		for quiet := 0; quiet < 10; quiet++ {
			if p.A.Link.Poll(a)+b.Poll(sink) > 0 || b.Arm() || readable(10) { // acknowledgements are under way
				quiet = 0
			}
		}
	}
	for i := range 20 {
		idle()
		send(p.A, []*link.Frame{{Head: wire.Header{Type: wire.Eager, Seq: uint64(i + 1), Length: 8}}})
		if !readable(10_000) {
			t.Fatal("a frame has come, and the engine sleeps")
		}
		for sink.Frames() == i {
			b.Poll(sink)
		}
	}
}

// TestRawInterfaceDown takes the interface down and up again: the engine can sleep meanwhile,
// and the connection goes on.
func TestRawInterfaceDown(t *testing.T) {
	na, nb := joined(t, "veth", 1500)
	p := between(t, na, nb, 1500, 1452, byRaw, nil)
	pingPong(t, p, 10)
	b := p.B.Link.(*Link)
	i := interfaceOf(t, nb)
	if err := nb.h.LinkSetDown(i); err != nil {
		t.Fatal(err)
	}
	sink := linktest.NewSink(p.B.Memory)
	slept := false
	for range 100 {
		b.Poll(sink)
		if !b.Arm() && !readableIn(t, b.FD(), 0) {
			slept = true
		}
	}
	if !slept {
		t.Error("the engine does not sleep while the interface is down")
	}
	if err := nb.h.LinkSetUp(i); err != nil {
		t.Fatal(err)
	}
	bothWays(t, p)
}

// TestRawMeetings checks the outcome if the sides cannot exchange frames, which the pair then
// leaves to TCP.
func TestRawMeetings(t *testing.T) {
	apart, other := joined(t, "veth", 1500)
	near, _ := joined(t, "veth", 1500)
	open := func(n *namespace, self link.Peer, change func(testing.TB, *namespace, *Config)) *Link {
		cfg := config(t, self, false)
		change(t, n, &cfg)
		l, err := New(cfg, linktest.NewMemory())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // nothing depends on it
		return l
	}
	udp := func(testing.TB, *namespace, *Config) {}
	x, y, z := open(apart, 0, byRaw), open(near, 1, byRaw), open(other, 1, udp)
	meet := func(b *Link, wants ...string) {
		t.Helper()
		e, f := x.Prepare(1), b.Prepare(0)
		over := make(chan error, 2)
		go func() { over <- e.Connect(f.Offer()) }()
		go func() { over <- f.Connect(e.Offer()) }()
		var errs []error
		for sink := linktest.NewSink(linktest.NewMemory()); len(errs) < 2; {
			select {
			case err := <-over:
				errs = append(errs, err)
			default:
				x.Poll(sink)
				b.Poll(sink)
				time.Sleep(10 * time.Microsecond) // the goroutines need a processor
			}
		}
		for _, want := range wants {
			if n := strings.Count(fmt.Sprint(errs), want); n != 2/len(wants) {
				t.Errorf("got %q, want %q", errs, wants)
			}
		}
		_, _ = e.Close(), f.Close() // never fail
	}
	meet(y, "raw Ethernet passes no router")
	meet(z, "the peer's packets go by UDP, those of this sidecar by raw Ethernet", "the peer's packets go by raw Ethernet, those of this sidecar by UDP")
}

// TestRawRefusesSockets opens links with sockets that the agent does not make.
func TestRawRefusesSockets(t *testing.T) {
	n, _ := joined(t, "veth", 1500)
	i := interfaceOf(t, n).Attrs().Index
	made := func(family, kind int, bind unix.Sockaddr) int {
		fd, err := -1, error(nil)
		n.in(func() {
			if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0); err == nil && bind != nil {
				err = unix.Bind(fd, bind)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	ringed := packetSocket(t, n, 0)
	c := config(t, 0, false)
	c.Raw = &Raw{FD: ringed}
	second, err := unix.Dup(ringed)
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for want, fd := range map[string]int{
		"bad file descriptor":     -1,
		"want a packet socket":    made(unix.AF_INET, unix.SOCK_DGRAM, nil),
		"of type 3":               made(unix.AF_PACKET, unix.SOCK_RAW, nil),
		"bound to interface 0":    made(unix.AF_PACKET, unix.SOCK_DGRAM, nil),
		"and ethertype 0x0800":    made(unix.AF_PACKET, unix.SOCK_DGRAM, &unix.SockaddrLinklayer{Ifindex: i, Protocol: networkOrder(0x800)}),
		"hardware type 772":       made(unix.AF_PACKET, unix.SOCK_DGRAM, &unix.SockaddrLinklayer{Ifindex: 1, Protocol: networkOrder(grant.EtherType)}),
		"device or resource busy": second,
	} {
		cfg := config(t, 0, false)
		cfg.Raw = &Raw{FD: fd}
		if _, err := New(cfg, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			t.Errorf("%s: the descriptor is still open", want)
		}
	}
}

// TestRawClose checks that nothing of a link is left: no descriptor, and no mapped ring.
func TestRawClose(t *testing.T) {
	n, _ := joined(t, "veth", 1500)
	rings := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(maps), "socket:[")
	}
	open, mapped := descriptors(t), rings()
	cfg := config(t, 0, false)
	byRaw(t, n, &cfg)
	l, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := rings(); got != mapped+1 {
		t.Errorf("%d rings are mapped, want %d", got, mapped+1)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if d, m := descriptors(t), rings(); d != open || m != mapped {
		t.Errorf("%d descriptors and %d rings are left, %d and %d were before", d, m, open, mapped)
	}
}

// TestRawReceivesWithoutCalls counts the system calls of the thread that receives small
// messages: none by raw Ethernet, some by UDP, which shows that they are counted.
func TestRawReceivesWithoutCalls(t *testing.T) {
	const rounds = 200
	for name, c := range map[string]struct {
		change func(testing.TB, *namespace, *Config)
		want   func(calls int) bool
	}{
		"raw": {byRaw, func(calls int) bool { return calls == 0 }},
		"UDP": {func(testing.TB, *namespace, *Config) {}, func(calls int) bool { return calls >= rounds }},
	} {
		t.Run(name, func(t *testing.T) {
			p := overBy("veth", 1500, 1452, c.change, nil)(t)
			a, b := linktest.NewSink(p.A.Memory), linktest.NewSink(p.B.Memory)
			l := p.B.Link.(*Link)
			l.cfg.Stream = quietStream{l.cfg.Stream}
			roomToCount(t)
			arrived := func() bool {
				if r, ok := l.out.carrier.(*raw); ok {
					return loadStatus(r.slotAt(r.next))&unix.TP_STATUS_USER != 0
				}
				return readableIn(t, l.out.carrier.descriptor(), 0)
			}
			work, answer := make(chan struct{}), make(chan int)
			go func() {
				runtime.LockOSThread() // never unlocked: the filter stays with the thread
				counted := countCalls(t)
				for range work {
					before := counted()
					l.Poll(b)
					answer <- counted() - before
				}
				close(answer)
			}()
			total := 0
			for i := range rounds {
				f := []*link.Frame{{Head: wire.Header{Type: wire.Eager, Seq: uint64(i + 1), Length: 8}}}
				send(p.A, f)
				for !arrived() {
					time.Sleep(10 * time.Microsecond)
				}
				l.polls = 0 // the sockets are polled by a call from time to time
				n := b.Frames()
				work <- struct{}{}
				total += <-answer
				if b.Frames() != n+1 {
					t.Fatalf("%d frames have come, want 1", b.Frames()-n)
				}
				send(p.B, f)
				for n := a.Frames(); a.Frames() == n; {
					p.A.Link.Poll(a)
				}
			}
			close(work)
			<-answer
			if s := l.Stats(); !c.want(total) || name == "raw" && s.Receives != 0 {
				t.Errorf("%d messages took %d system calls to receive; %d are counted", rounds, total, s.Receives)
			}
		})
	}
}

// quietStream is a link of streams that is not polled.
type quietStream struct{ link.Stream }

func (quietStream) Poll(link.Sink) int { return 0 }
