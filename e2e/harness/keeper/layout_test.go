package keeper

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLayoutIsKept(t *testing.T) {
	l := &Layout{Dir: filepath.Join(t.TempDir(), "cluster"), Bin: "/bin", Public: "127.0.0.1:1", Nodes: 3, Images: []string{"a.tar"}, Version: "v1"}
	if err := l.Write(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadLayout(l.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"node1", "node2", "node3"}, got.Names()); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	for _, wrong := range []int{0, nodesMax + 1} {
		l.Nodes = wrong
		if l.Write() == nil {
			t.Errorf("a cluster of %d nodes was laid out", wrong)
		}
	}
}

// Every node has addresses of its own, its pods' among all pods', and the way to
// every other node's pods.
func TestNodesAddresses(t *testing.T) {
	l := &Layout{Dir: t.TempDir(), Nodes: nodesMax}
	owner := map[string]string{}
	for i := 1; i <= nodesMax; i++ {
		s := l.node(i, l.plane())
		for _, text := range []string{s.Address, s.Pods} {
			if _, err := netip.ParsePrefix(text); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
			if other := owner[text]; other != "" {
				t.Errorf("%s is of %s and of %s", text, other, s.Name)
			}
			owner[text] = s.Name
		}
		if pods := netip.MustParsePrefix(s.Pods); !netip.MustParsePrefix(podRange).Contains(pods.Addr()) {
			t.Errorf("%s: its pods' %s is not in %s", s.Name, s.Pods, podRange)
		}
		if len(s.Routes) != nodesMax-1 {
			t.Errorf("%s has %d routes to other nodes, want %d", s.Name, len(s.Routes), nodesMax-1)
		}
	}
	last := l.node(nodesMax, l.plane())
	if route := last.Routes[0]; owner[route.Pods] != "node1" || owner[route.Via+"/24"] != "node1" {
		t.Errorf("%s reaches node1's pods by %+v", last.Name, route)
	}
}
