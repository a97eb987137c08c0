//go:build rdmavm

package rdmavm

import (
	"path/filepath"
	"testing"
	"time"
)

// TestEtherNetworks: the link ether passes the common test suite of links over networks that
// lose, reorder, repeat and corrupt packets, and through a bottleneck. It takes 10 minutes or
// more, and is not in CI.
func TestEtherNetworks(t *testing.T) {
	ether(t, "ether-networks", "^TestShapedNetworks$", 40*time.Minute)
}

// TestEtherTraffic: frames and reads of the link ether pass each of these networks, and many
// peers answer one through a bottleneck.
func TestEtherTraffic(t *testing.T) {
	ether(t, "ether-traffic", "^TestShaped(Traffic|Incast)$", 5*time.Minute)
}

// TestEtherFair: the link ether and a TCP connection share a bottleneck.
func TestEtherFair(t *testing.T) { ether(t, "ether-fair", "^TestShapedFair$", 5*time.Minute) }

// TestEtherRawNetworks and TestEtherRawTraffic are TestEtherNetworks and TestEtherTraffic by raw
// Ethernet, without the many peers.
func TestEtherRawNetworks(t *testing.T) {
	ether(t, "ether-raw-networks", "^TestShapedRawNetworks$", 40*time.Minute)
}

func TestEtherRawTraffic(t *testing.T) {
	ether(t, "ether-raw-traffic", "^TestShapedRawTraffic$", 5*time.Minute)
}

// ether runs tests of the link in a machine whose kernel can make networks bad.
func ether(t *testing.T, name, run string, limit time.Duration) {
	t.Helper()
	test := filepath.Join(t.TempDir(), "ether.test")
	if err := Compile(test, "../../sidecar/internal/link/ether", "offload", "etherguest"); err != nil {
		t.Fatal(err)
	}
	passes(t, Run{
		Name: name, Programs: []string{test}, Modules: []string{ModulesShape}, Limit: limit, TSC: true,
		Commands: [][]string{{"ether.test", "-test.v", "-test.run", run, "-test.timeout", (limit * 9 / 10).String()}},
	})
}
