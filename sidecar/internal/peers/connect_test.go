package peers

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

func TestConnect(t *testing.T) {
	for _, dialler := range []int{0, 1} {
		n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1})
		n[dialler].Connect(n[1-dialler].cfg.Self)
		n[0].waitConnected(1, 1)
		n[1].waitConnected(0, 1)
		bothWays(t, n[0], n[1])
	}
}

// TestSimultaneous checks that if both sides connect at the same moment, repeatedly, both
// always get the two sides of one connection.
func TestSimultaneous(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1})
	for round := 1; round <= 100; round++ {
		had := [2]int{n[0].count(1), n[1].count(0)}
		var both sync.WaitGroup
		both.Go(func() { n[0].Connect(1) })
		both.Go(func() { n[1].Connect(0) })
		both.Wait()
		n[0].waitConnected(1, had[0]+1)
		n[1].waitConnected(0, had[1]+1)
		// A request that crossed the connection may cause a second one.
		wait(t, "quiet", func() bool { return n[0].quiet() && n[1].quiet() && n[0].count(1) == n[1].count(0) })
		bothWays(t, n[0], n[1])
	}
}

// quiet reports whether no dial or handshake is in progress.
func (n *node) quiet() bool {
	n.Mesh.mu.Lock()
	defer n.Mesh.mu.Unlock()
	return len(n.dials) == 0 && len(n.conns) == 0
}

// TestReconnect checks that after a break either side may ask for the next connection.
func TestReconnect(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1})
	for i := 1; i <= 10; i++ {
		asks := n[i%2]
		asks.Connect(n[1-i%2].cfg.Self)
		n[0].waitConnected(1, i)
		n[1].waitConnected(0, i)
		bothWays(t, n[0], n[1])
		if err := unix.Shutdown(n[0].newest(1), unix.SHUT_RDWR); err != nil {
			t.Fatal(err)
		}
		wait(t, "quiet", func() bool { return n[0].quiet() && n[1].quiet() })
	}
}

// TestOneDialsAfterABreak checks that both sides notice a break, and that the
// lower-numbered one dials without a request of the other.
func TestOneDialsAfterABreak(t *testing.T) {
	var questions atomic.Int32
	n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1}, func(c *Config) {
		c.Ask = time.Hour
		if c.Self == 0 {
			c.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
				questions.Add(1)
				return nil, nil // continue with this one
			}
		}
	})
	n[0].Connect(1)
	for i := 1; i <= 20; i++ {
		n[0].waitConnected(1, i)
		n[1].waitConnected(0, i)
		bothWays(t, n[0], n[1])
		wait(t, "quiet", func() bool { return n[0].quiet() && n[1].quiet() })
		if err := unix.Shutdown(n[0].newest(1), unix.SHUT_RDWR); err != nil {
			t.Fatal(err)
		}
		n[1].Connect(0)
		n[0].Connect(1)
	}
	n[0].waitConnected(1, 21)
	n[1].waitConnected(0, 21)
	wait(t, "the end of all dials", func() bool { return n[0].quiet() && n[1].quiet() })
	if q := questions.Load(); q != 0 || n[0].count(1) != 21 || n[1].count(0) != 21 {
		t.Errorf("%d requests, %d and %d connections, want 0, 21 and 21", q, n[0].count(1), n[1].count(0))
	}
}

// TestRequestCancelled checks that a request for a connection that the higher-numbered
// side cancels, because it has a connection meanwhile, causes no second connection, which
// would break the first, and that a request that stays does.
func TestRequestCancelled(t *testing.T) {
	j := newJob(t, "j", time.Hour)
	n := j.nodes(2, []int{0, 1})
	n[0].Connect(1)
	n[0].waitConnected(1, 1)
	n[1].waitConnected(0, 1)
	wait(t, "quiet", func() bool { return n[0].quiet() && n[1].quiet() })
	ask := func() *tls.Conn {
		c, err := net.Dial("tcp", n[0].cfg.Addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		s := tls.Client(&observedConn{c, new(dialResult)}, j.credentials(1))
		if _, err := n[1].Mesh.greet(s, 0); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 10 {
		_ = ask().NetConn().Close() // which cancels the request
	}
	wait(t, "quiet", func() bool { return n[0].quiet() && n[1].quiet() })
	if a, b := n[0].count(1), n[1].count(0); a != 1 || b != 1 {
		t.Fatalf("%d and %d connections after cancelled requests, want 1", a, b)
	}
	s := ask()
	defer func() { _ = s.Close() }() // the connection counts
	n[0].waitConnected(1, 2)
	n[1].waitConnected(0, 2)
	bothWays(t, n[0], n[1])
}

// TestMissingPeer checks that dialling continues until the peer answers, or Cancel.
func TestMissingPeer(t *testing.T) {
	j := newJob(t, "j", time.Hour)
	n := j.nodes(3, []int{0})[0]
	n.Connect(1)
	n.Connect(1) // a second call has no effect
	n.Connect(2)
	wait(t, "a log line about it", func() bool { return n.log.has("peer=1") && n.log.has("peer=2") })
	n.Cancel(2)
	n.Cancel(2)
	l, err := net.Listen("tcp", n.cfg.Addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	late := &node{t: t, log: new(journal), served: make(chan error, 1), fds: map[link.Peer][]int{}}
	cfg := n.cfg
	cfg.Self, cfg.TLS, cfg.Connected = 1, j.credentials(1), late.connectedTo
	late.Mesh = New(cfg, l)
	go func() { late.served <- late.Serve() }()
	defer late.end()
	n.waitConnected(1, 1)
	late.waitConnected(0, 1)
	bothWays(t, n, late)
	wait(t, "the end of all dials", n.quiet)
	if n.count(2) != 0 {
		t.Error("connected to a pod that does not exist")
	}
}

// TestCloseDuringHandshakes checks that Close does not wait for a peer, in either role.
func TestCloseDuringHandshakes(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(2, []int{0}, func(c *Config) { c.HandshakeTimeout = time.Hour })[0]
	deaf, err := net.Listen("tcp", n.cfg.Addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }() // it only listens
	n.Connect(1)
	dialled, err := deaf.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dialled.Close() }() // it sends nothing
	for range 3 {
		c, err := net.Dial("tcp", n.cfg.Addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // nor does it
	}
	wait(t, "the incoming connections", func() bool {
		n.Mesh.mu.Lock()
		defer n.Mesh.mu.Unlock()
		return len(n.conns) == 3
	})
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if n.Refused() != 0 {
		t.Errorf("%d connections count as refused, although this side has closed them", n.Refused())
	}
	n.Connect(1) // too late: no effect
}
