//go:build rdma && rdmaguest

package verbs

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// openTest opens the machine's device.
func openTest(t *testing.T) nic {
	t.Helper()
	mine, err := addresses()
	if err != nil {
		t.Fatal(err)
	}
	n, err := openDevice([]Granted{{Name: "rxe0", NUMA: -1}}, 2, func(ports []portState) (Port, error) { return choose(ports, mine, netip.Addr{}, nil) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDevice: the link passes the suite over a device, two queue pairs of which
// are joined.
func TestDevice(t *testing.T) {
	linktest.Run(t, func(t *testing.T) *linktest.Pair { return pairOf(t, func() nic { return openTest(t) }) })
}

// TestPort: what is chosen is an address of this namespace, on RoCE v2.
func TestPort(t *testing.T) {
	n := openTest(t)
	p := n.about()
	t.Log(p)
	mine, err := addresses()
	if err != nil {
		t.Fatal(err)
	}
	if p.Fabric != RoCEv2 || !slices.Contains(mine, p.GID.Unmap()) || !p.GID.Unmap().Is4() {
		t.Errorf("chosen was %v, want RoCE v2 with an IPv4 address of %v", p, mine)
	}
	if err := n.close(); err != nil {
		t.Error(err)
	}
}

// TestNotGranted: no device is used that was not granted.
func TestNotGranted(t *testing.T) {
	_, err := Open(Config{Peers: 2}, nil, []Granted{{Name: "mlx5_0"}}, "10.8.0.1:7077")
	if err == nil {
		t.Fatal("opened a device that is not there")
	}
	t.Log(err)
}
