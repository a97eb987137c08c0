//go:build offload && etherguest

package ether

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// The tests of this file run in a virtual machine (e2e/rdmavm), whose kernel has the
// queueing disciplines netem and tbf.

// tc runs tc in a namespace.
func (n *namespace) tc(t testing.TB, args string) string {
	t.Helper()
	var out []byte
	var err error
	n.in(func() { out, err = exec.Command("tc", strings.Fields(args)...).CombinedOutput() }) // the child is in the thread's namespace
	if err != nil {
		t.Fatalf("tc %s: %v: %s", args, err, out)
	}
	return string(out)
}

// shape makes the output of a namespace's interface bad as tc-netem(8) describes. A tbf in
// front cuts batches into packets: netem would lose a whole batch at once.
func (n *namespace) shape(t testing.TB, device, netem string, mtu int) {
	t.Helper()
	n.tc(t, fmt.Sprintf("qdisc add dev %s root handle 1: tbf rate 20gbit burst %d limit 64mb", device, 2*mtu))
	n.tc(t, "qdisc add dev "+device+" parent 1: netem limit 20000 "+netem)
}

// bottleneck limits the output of a namespace's interface to a rate, behind a queue of a
// size.
func (n *namespace) bottleneck(t testing.TB, device, rate, queue string) {
	t.Helper()
	n.tc(t, "qdisc add dev "+device+" root tbf rate "+rate+" burst 16kb limit "+queue)
}

// devices returns the interfaces of both sides of a network of joined.
func devices(kind string) [2]string {
	switch kind {
	case "veth":
		return [2]string{"eth", "peer"}
	case "bridge":
		return [2]string{"eth", "eth"}
	}
	return [2]string{"mac0", "mac1"}
}

// conditions are what is wrong with the networks of TestShapedNetworks.
var conditions = map[string]string{
	"loss":      "loss 5%",
	"reorder":   "delay 2ms reorder 75%",
	"duplicate": "duplicate 5%",
	"corrupt":   "corrupt 2%",
	"all":       "delay 1ms 500us reorder 50% loss 5% duplicate 5% corrupt 1%",
}

// byUDP makes a link use UDP.
func byUDP(testing.TB, *namespace, *Config) {}

// shaped returns the harness of links by a carrier over a network that is bad in a way.
func shaped(by func(testing.TB, *namespace, *Config), kind string, mtu int, condition string, pull bool) linktest.Harness {
	return func(t *testing.T) *linktest.Pair {
		na, nb := joined(t, kind, mtu)
		for i, n := range []*namespace{na, nb} {
			if condition == "bottleneck" {
				n.bottleneck(t, devices(kind)[i], "100mbit", "64kb")
				continue
			}
			n.shape(t, devices(kind)[i], conditions[condition], mtu)
		}
		a, b := inNamespaces(t, na, nb, func(t testing.TB, n *namespace, c *Config) {
			t.Helper()
			by(t, n, c)
			c.Pull = pull
		})
		p := meeting(t, na, nb, a, b, func(testing.TB, int) {})
		p.Lossy = true
		return p
	}
}

// badNetwork is a network that is bad in a way.
type badNetwork struct {
	kind      string
	mtu       int
	condition string
	pull      bool
}

// passes runs the suite by a carrier over networks that are bad.
func passes(t *testing.T, by func(testing.TB, *namespace, *Config), list []badNetwork) {
	t.Helper()
	for _, c := range list {
		name := fmt.Sprintf("%s/%d/%s", c.kind, c.mtu, c.condition)
		if c.pull {
			name += "/pull"
		}
		t.Run(name, func(t *testing.T) { linktest.Run(t, shaped(by, c.kind, c.mtu, c.condition, c.pull)) })
	}
}

// TestShapedNetworks runs the suite over networks that lose, reorder, repeat and corrupt
// packets, and through a bottleneck.
func TestShapedNetworks(t *testing.T) {
	passes(t, byUDP, []badNetwork{
		{"veth", 1500, "loss", false},
		{"veth", 1500, "loss", true},
		{"bridge", 1450, "reorder", true},
		{"macvlan", 1500, "duplicate", true},
		{"veth", 1450, "corrupt", true},
		{"veth", 1500, "bottleneck", true},
		{"bridge", 1500, "bottleneck", false},
		{"macvlan", 9000, "bottleneck", true},
		{"bridge", 9000, "loss", true},
		{"bridge", 1450, "all", false},
		{"macvlan", 9000, "all", true},
	})
}

// TestShapedRawNetworks is TestShapedNetworks by raw Ethernet, whose frames no checksum of the
// kernel protects. A bridge and macvlan pass the frames on by their addresses.
func TestShapedRawNetworks(t *testing.T) {
	passes(t, byRaw, []badNetwork{
		{"veth", 1500, "loss", false},
		{"bridge", 9000, "loss", true},
		{"bridge", 1450, "reorder", true},
		{"macvlan", 1500, "duplicate", true},
		{"veth", 1450, "corrupt", true},
		{"veth", 1500, "bottleneck", true},
		{"bridge", 1500, "bottleneck", false},
		{"bridge", 1450, "all", false},
		{"macvlan", 9000, "all", true},
	})
}

// dropped returns the packets that UDP sockets of a namespace have dropped because their
// buffers were full (the last column of /proc/net/udp).
func (n *namespace) dropped(t testing.TB) (sum int) {
	t.Helper()
	var b []byte
	var err error
	n.in(func() { b, err = os.ReadFile("/proc/thread-self/net/udp") })
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
		f, drops := strings.Fields(line), 0
		if _, err := fmt.Sscan(f[len(f)-1], &drops); err != nil {
			t.Fatal(err)
		}
		sum += drops
	}
	return sum
}

// rate formats bytes in a time as a rate.
func rate(bytes uint64, d time.Duration) string {
	return fmt.Sprintf("%.1f Mbit/s", float64(bytes)*8/d.Seconds()/1e6)
}

// star makes n namespaces whose interfaces eth a bridge in this namespace joins, with the
// addresses 10.99.0.1 and so on. The bridge's ports are port0 and so on.
func (n *namespace) star(t testing.TB, count int) (list []*namespace) {
	t.Helper()
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}
	if err := n.h.LinkAdd(br); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		side, port := newNamespace(t), fmt.Sprintf("port%d", i)
		err := n.h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: "eth"})
		if err != nil {
			t.Fatal(err)
		}
		p, err := n.h.LinkByName(port)
		if err == nil {
			err = errors.Join(n.h.LinkSetMaster(p, br), n.h.LinkSetUp(p))
		}
		if err != nil {
			t.Fatal(err)
		}
		e, err := n.h.LinkByName("eth")
		if err == nil {
			err = n.h.LinkSetNsFd(e, side.fd)
		}
		if err != nil {
			t.Fatal(err)
		}
		side.up(t, "eth", fmt.Sprintf("10.99.0.%d/24", i+1), 1500)
		list = append(list, side)
	}
	if err := n.h.LinkSetUp(br); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestShapedTraffic sends frames of all sizes in both directions, and reads, over networks
// that are bad in each way, and checks that all bytes arrive, and some within each second of
// the processor.
func TestShapedTraffic(t *testing.T) { badTraffic(t, byUDP) }

// TestShapedRawTraffic is TestShapedTraffic by raw Ethernet.
func TestShapedRawTraffic(t *testing.T) { badTraffic(t, byRaw) }

func badTraffic(t *testing.T, by func(testing.TB, *namespace, *Config)) {
	t.Helper()
	names := slices.Sorted(maps.Keys(conditions))
	for i, name := range append(names, "bottleneck") {
		kind, mtu := []string{"veth", "bridge", "macvlan"}[i%3], []int{1500, 1450, 9000}[i/2%3]
		t.Run(fmt.Sprintf("%s/%s/%d", name, kind, mtu), func(t *testing.T) {
			p := shaped(by, kind, mtu, name, true)(t)
			a, b := p.A.Link.(*Link), p.B.Link.(*Link)
			traffic(t, a, b, p)
			if s, u := a.Stats(), b.Stats(); a.Raw() && name == "corrupt" && s.Forged+s.Odd+u.Forged+u.Odd == 0 {
				t.Error("no corrupt frame has come: the test shows nothing")
			}
		})
	}
}

// traffic checks frames and reads between the sides of a pair.
func traffic(t *testing.T, la, lb *Link, p *linktest.Pair) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	a, b := &side{l: la, m: p.A.Memory}, &side{l: lb, m: p.B.Memory}
	forth, back := some(r, a.m), some(r, b.m)
	x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
	left, right := forth, back
	reads := someReads(t, r, a, b)
	begun := time.Now()
	last, seen := processorTime(t), uint64(0)
	for x.Frames() < len(back) || y.Frames() < len(forth) || len(x.Ends()) < len(reads) {
		left = left[la.Post(1, left):]
		right = right[lb.Post(0, right):]
		if la.Poll(x)+lb.Poll(y) == 0 {
			rest(la, lb)
		}
		if n := uint64(x.Frames()+y.Frames()) + la.stats.PulledBytes + la.Stats().SocketIn + lb.Stats().SocketIn; n > seen {
			seen, last = n, processorTime(t)
		}
		if processorTime(t)-last > time.Second || x.DownError() != nil || y.DownError() != nil {
			t.Fatalf("nothing for a second of the processor, or an end: %v, %v", x, y)
		}
	}
	took := time.Since(begun)
	linktest.Compare(t, a.m, forth, y)
	linktest.Compare(t, b.m, back, x)
	checkReads(t, 7, reads, a, b, x, true)
	s, u := la.Stats(), lb.Stats()
	t.Logf("%d and %d frames and %d reads in %v: %d packets sent again, %d repeated, %d replayed, %d forged, %d blocks asked for again",
		len(forth), len(back), len(reads), took.Round(time.Millisecond), s.Lost+u.Lost, s.Repeated+u.Repeated, s.Replayed+u.Replayed, s.Forged+u.Forged, s.AskedAgain)
}
