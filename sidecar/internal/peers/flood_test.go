package peers

import (
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// idle opens connections to the node and sends first on each.
func (n *node) idle(count int, first string) {
	n.t.Helper()
	for range count {
		c, err := net.Dial("tcp", n.cfg.Addresses[n.cfg.Self])
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = c.Close() }) // it is not needed any more
		if _, err := c.Write([]byte(first)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// hangs makes only the limiter end handshakes.
func hangs(c *Config) { c.HandshakeTimeout, c.FirstByteTimeout = time.Hour, time.Hour }

// TestIdleConnections checks that unauthenticated connections that stay open, however
// many and whether they have sent something or not, do not prevent a peer from
// connecting, for the first time or after a break. No deadline ends anything here.
func TestIdleConnections(t *testing.T) {
	for what, first := range map[string]string{
		"silent": "", "half of a data connection": "OUTR", "half of TLS": string([]byte{tlsHandshake, 3, 1, 2, 0}),
	} {
		t.Run(what, func(t *testing.T) {
			n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1}, hangs)
			n[1].idle(300, first)
			wait(t, "the connections", func() bool { return n[1].limiter.Len() == (pendingDefault+1)/2 })
			for round := 1; round <= 3; round++ {
				n[0].Connect(1)
				n[0].waitConnected(1, round)
				n[1].waitConnected(0, round)
				bothWays(t, n[0], n[1])
				if err := unix.Shutdown(n[0].newest(1), unix.SHUT_RDWR); err != nil {
					t.Fatal(err)
				}
				n[1].idle(100, first)
			}
		})
	}
}

// TestPendingIsBounded checks that unauthenticated connections use at most their share of
// the slots, and that silent ones are closed by the deadline.
func TestPendingIsBounded(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(2, []int{1}, func(c *Config) { c.Pending, c.FirstByteTimeout = 6, 50*time.Millisecond })[0]
	n.idle(20, "")
	for n.Refused() < 20 {
		if got := n.limiter.Len(); got > 3 {
			t.Fatalf("%d slots of one address, want at most 3", got)
		}
		time.Sleep(time.Millisecond)
	}
	wait(t, "no slot in use", func() bool { return n.limiter.Len() == 0 })
}

// TestOneFloodsWithItsCertificate checks that a peer that opens control connections and
// goes no further has at most a few of them, and that these take no slots of other
// connections.
func TestOneFloodsWithItsCertificate(t *testing.T) {
	j := newJob(t, "j", time.Hour)
	n := j.nodes(3, []int{2}, hangs)[0]
	for range 3 * provenMax {
		go handshakeWith(j.credentials(0))(n.dialRaw())
	}
	wait(t, "its connections to end", func() bool {
		n.Mesh.mu.Lock()
		defer n.Mesh.mu.Unlock()
		return n.Mesh.refused.Load() >= 2*provenMax && len(n.proven[0]) <= provenMax
	})
	wait(t, "no slot in use", func() bool { return n.limiter.Len() == 0 })
}

// TestSilentPeer checks that a peer whose address accepts connections without an answer
// is stopped, and fails, and that a peer that ends its connections is still dialled.
func TestSilentPeer(t *testing.T) {
	type failure struct {
		peer  link.Peer
		cause error
	}
	failures := make(chan failure, 4)
	n := newJob(t, "j", time.Hour).nodes(3, []int{0}, func(c *Config) {
		c.Silence = 200 * time.Millisecond
		c.Failed = func(p link.Peer, cause error) { failures <- failure{p, cause} }
	})[0]
	stopped, err := net.Listen("tcp", n.cfg.Addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stopped.Close() }() // the kernel accepts, and the peer does not
	crashing, err := net.Listen("tcp", n.cfg.Addresses[2])
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := crashing.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // at once
		}
	}()
	n.Connect(2)
	n.Connect(1)
	f := <-failures
	if f.peer != 1 || !strings.Contains(f.cause.Error(), "accepts connections and sends nothing for ") {
		t.Errorf("pod %d failed: %v", f.peer, f.cause)
	}
	n.Cancel(2)
	_ = crashing.Close() // it only listens
	<-ended
	wait(t, "the end of all dials", n.quiet)
	if len(failures) != 0 {
		t.Errorf("more failures: %v", <-failures)
	}
}

// TestStartedAgain checks that Lost is called for another process in the place of a peer
// before its connection is passed on, whichever side dials.
func TestStartedAgain(t *testing.T) {
	for _, again := range []int{0, 1} {
		j := newJob(t, "j", time.Hour)
		lost := make(chan link.Peer, 4)
		n := j.nodes(2, []int{0, 1}, func(c *Config) { c.Lost = func(p link.Peer, _ error) { lost <- p } })
		n[0].Connect(1)
		n[0].waitConnected(1, 1)
		n[1].waitConnected(0, 1)
		n[0].Connect(1) // the same process once more
		n[0].waitConnected(1, 2)
		n[1].waitConnected(0, 2)
		if len(lost) != 0 {
			t.Error("a peer that connects again counts as lost")
		}
		old, other := n[again], n[1-again]
		cfg := old.cfg
		old.end()
		l, err := net.Listen("tcp", cfg.Addresses[again])
		if err != nil {
			t.Fatal(err)
		}
		old.served <- nil // for the cleanup at the end of the test
		fresh := &node{t: t, log: new(journal), served: make(chan error, 1), fds: map[link.Peer][]int{}}
		cfg.Incarnation, cfg.Connected = 0, fresh.connectedTo
		fresh.Mesh = New(cfg, l)
		go func() { fresh.served <- fresh.Serve() }()
		other.Connect(link.Peer(again))
		other.waitConnected(link.Peer(again), 3)
		if p := <-lost; p != link.Peer(again) {
			t.Errorf("pod %d is lost, want %d", p, again)
		}
		fresh.waitConnected(link.Peer(1-again), 1)
		wait(t, "quiet", func() bool { return other.quiet() && fresh.quiet() })
		fresh.end()
		if len(lost) != 0 {
			t.Errorf("the new process reports pod %d as lost", <-lost)
		}
	}
}

// TestManyPeersAtOnce checks that more peers than one address has slots can connect at
// the same moment, in addition to idle unauthenticated connections.
func TestManyPeersAtOnce(t *testing.T) {
	const peers = pendingDefault/2 + 16
	var all []int
	for i := range peers + 1 {
		all = append(all, i)
	}
	n := newJob(t, "j", time.Hour).nodes(len(all), all)
	last := n[peers]
	last.idle(100, "OUTR")
	begun := time.Now()
	for _, p := range n[:peers] {
		p.Connect(peers)
	}
	for i, p := range n[:peers] {
		p.waitConnected(peers, 1)
		last.waitConnected(link.Peer(i), 1)
	}
	t.Logf("%d peers after %v; %d connections were refused", peers, time.Since(begun), last.Refused())
}
