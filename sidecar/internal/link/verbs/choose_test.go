package verbs

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func gid(index int, f Fabric, text string) gidEntry {
	a := netip.MustParseAddr(text)
	return gidEntry{index: index, fabric: f, gid: netip.AddrFrom16(a.As16())}
}

func TestChoose(t *testing.T) {
	mine := []netip.Addr{netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("192.168.9.5"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("2001:db8::5")}
	roce := func(name string, numa, rate int, gids ...gidEntry) portState {
		return portState{Port: Port{Device: name, NUMA: numa, Number: 1, Rate: rate}, active: true, gids: gids}
	}
	others := gid(3, RoCEv2, "10.1.0.77") // of another namespace
	down := roce("down", 0, 400_000, gid(1, RoCEv2, "10.1.0.5"))
	down.active = false
	for name, c := range map[string]struct {
		ports  []portState
		prefer string
		numa   []int
		device string
		index  int
		fails  string
	}{
		"IPv4 before link-local, v2 before v1": {
			ports:  []portState{roce("a", 0, 1, gid(0, RoCEv1, "10.1.0.5"), gid(1, RoCEv2, "fe80::1"), others, gid(5, RoCEv2, "10.1.0.5"))},
			device: "a", index: 5,
		},
		"a global IPv6 before link-local": {
			ports:  []portState{roce("a", 0, 1, gid(1, RoCEv2, "fe80::1"), gid(2, RoCEv2, "2001:db8::5"))},
			device: "a", index: 2,
		},
		"the pod's own address": {
			ports: []portState{roce("a", 0, 1, gid(4, RoCEv2, "192.168.9.5"), gid(5, RoCEv2, "10.1.0.5"))}, prefer: "192.168.9.5",
			device: "a", index: 4,
		},
		"InfiniBand needs no interface": {
			ports:  []portState{roce("ib", 0, 1, gid(0, InfiniBand, "fe80::9"))},
			device: "ib", index: 0,
		},
		"the near device before the fast one": {
			ports: []portState{roce("far", 1, 400_000, gid(1, RoCEv2, "10.1.0.5")), roce("near", 0, 100_000, gid(1, RoCEv2, "10.1.0.5"))}, numa: []int{0},
			device: "near", index: 1,
		},
		"the fast one": {
			ports:  []portState{roce("slow", 0, 100_000, gid(1, RoCEv2, "10.1.0.5")), roce("fast", 1, 400_000, gid(1, RoCEv2, "10.1.0.5"))},
			device: "fast", index: 1,
		},
		"only others' addresses": {ports: []portState{roce("a", 0, 1, others)}, fails: "a port 1 has no address of a network interface of this namespace among its 1 GIDs"},
		"not active":             {ports: []portState{down}, fails: "down port 1 is not active"},
		"nothing":                {fails: "no granted device has a port"},
	} {
		var prefer netip.Addr
		if c.prefer != "" {
			prefer = netip.MustParseAddr(c.prefer)
		}
		got, err := choose(c.ports, mine, prefer, c.numa)
		if c.fails != "" {
			if !errors.Is(err, errNoPort) || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v, want %q", name, err, c.fails)
			}
			continue
		}
		if err != nil || got.Device != c.device || got.Index != c.index {
			t.Errorf("%s: %v, %v; want %s, line %d", name, got, err, c.device, c.index)
		}
	}
}

func TestNumbers(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-2,5": {0, 1, 2, 5}, "": nil, "x": nil, "3-1": nil, "0-99999": nil} {
		if got := numbers(list); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", list, got, want)
		}
	}
}
