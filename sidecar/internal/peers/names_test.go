package peers

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/dns"
)

// TestNameServerIsAway checks that names of peers that cannot be looked up are looked up
// again until the name server answers, and that a name server that stops afterwards
// breaks no connection, and prevents none from being made again.
func TestNameServerIsAway(t *testing.T) {
	var away, asked atomic.Int32
	away.Store(1)
	names := &dns.Resolver{Lookup: func(context.Context, string) ([]netip.Addr, error) {
		asked.Add(1)
		if away.Load() == 1 {
			return nil, errors.New("i/o timeout")
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}}
	n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1}, func(c *Config) {
		named := make([]string, len(c.Addresses))
		for i, a := range c.Addresses {
			_, port, err := net.SplitHostPort(a)
			if err != nil {
				t.Fatal(err)
			}
			named[i] = net.JoinHostPort("cg-0-1.cg.hpc.svc", port)
		}
		c.Addresses, c.Names = named, names
		c.Failed, c.Silence, c.Early = nil, 50*time.Millisecond, 50*time.Millisecond
	})
	n[0].Connect(1)
	wait(t, "questions without an answer", func() bool { return asked.Load() >= 3 })
	if n[0].count(1) != 0 {
		t.Fatal("a peer without an address was reached")
	}
	away.Store(0)
	n[0].waitConnected(1, 1)
	n[1].waitConnected(0, 1)
	bothWays(t, n[0], n[1])
	away.Store(1)
	if err := unix.Shutdown(n[0].newest(1), unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	wait(t, "quiet", func() bool { return n[0].quiet() && n[1].quiet() })
	n[0].Connect(1)
	n[0].waitConnected(1, 2)
	n[1].waitConnected(0, 2)
	bothWays(t, n[0], n[1])
}
