package offer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
)

const hca = "outrigger.dev/hca"

// cards returns HCAs with the given IDs, as a scan finds them.
func cards(ids ...string) (list []inventory.Device) {
	for _, id := range ids {
		list = append(list, inventory.Device{ID: id, Kind: inventory.HCA, Name: "mlx5_" + id, NUMA: 0, Files: []string{"infiniband/" + id}})
	}
	return list
}

// allocatable counts the healthy units of a resource, as the kubelet does.
func allocatable(l *Ledger, name string) (n int) {
	for _, u := range l.Units(name) {
		if u.Healthy {
			n++
		}
	}
	return n
}

// given returns the unit that a kubelet allocates to one more container: a healthy unit that
// no container holds.
func given(l *Ledger, name string, held ...string) string {
	for _, u := range l.Units(name) {
		if u.Healthy && !strings.Contains(" "+strings.Join(held, " ")+" ", " "+u.ID+" ") {
			if _, err := l.Allocate(name, []string{u.ID}); err == nil {
				return u.ID
			}
		}
	}
	return ""
}

// TestHeldAcrossARestart: an agent that has been restarted allocates no device that a
// container of its predecessor holds, whatever has changed in the meantime.
func TestHeldAcrossARestart(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		held   map[string][]string
		of     string
		want   string // units that can be allocated, in order
	}{
		"count, and a card has come before it": {
			"pools: [{kind: hca, count: 1}, {kind: hca, resource: example.com/rest}]", map[string][]string{hca: {"b"}}, "example.com/rest", "a c",
		},
		"the resource was renamed": {"pools: [{kind: hca, resource: example.com/new}]", map[string][]string{hca: {"b"}}, "example.com/new", "a c"},
		"another plugin's":         {"pools: [{kind: hca}]", map[string][]string{"nvidia.com/hostdev": {"b"}}, hca, "a c"},
		"shares of it are offered": {
			"pools: [{kind: hca, sharing: shared, shares: 2}]", map[string][]string{hca: {"b"}}, hca, "a::0 a::1 c::0 c::1",
		},
		"shares of it were offered": {"pools: [{kind: hca}]", map[string][]string{hca: {"b::0"}}, hca, "a c"},
		"shares under another name": {
			"pools: [{kind: hca, resource: example.com/new, sharing: shared, shares: 2}]", map[string][]string{hca: {"b::0"}}, "example.com/new", "a::0 a::1 b::0 b::1 c::0 c::1",
		},
		"none is held": {"pools: [{kind: hca}]", nil, hca, "a b c"},
	} {
		l := newLedger(t, c.config)
		l.Hold(c.held)
		l.Update(cards("a", "b", "c"))
		var got []string
		for {
			unit := given(l, c.of, append(got, c.held[c.of]...)...)
			if unit == "" {
				break
			}
			got = append(got, unit)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q can be had, want %q", name, s, c.want)
		}
	}
	l := newLedger(t, "pools: [{kind: hca}]")
	if l.Known() {
		t.Error("it is known what containers hold before the kubelet has said so")
	}
	l.Hold(map[string][]string{"example.com/other": {"b"}})
	l.Update(cards("b"))
	if _, err := l.Allocate(hca, []string{"b"}); err == nil || !strings.Contains(err.Error(), "a container holds it as b of example.com/other") || !l.Known() {
		t.Errorf("%v", err)
	}
}

// TestHeldOutOfSight: the number of allocatable units, less the units that containers request,
// is the number of free cards. This also holds while cards are in their containers' network
// namespaces, with and without a restart of the agent.
func TestHeldOutOfSight(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			clock := time.Unix(1000, 0)
			start := func() *Ledger {
				l := newLedger(t, "pools: [{kind: hca, count: 3}]")
				l.now = func() time.Time { return clock }
				return l
			}
			l := start()
			l.Hold(nil)
			l.Update(cards("a", "b", "c"))
			held := map[string][]string{hca: {"a", "b"}}
			if _, err := l.Allocate(hca, held[hca]); err != nil {
				t.Fatal(err)
			}
			if restarted {
				l = start()
			}
			free := func(what string, want int) {
				t.Helper()
				if n := allocatable(l, hca) - len(held[hca]); n != want {
					t.Errorf("%s: %d allocatable less %d requested, want %d free: %s", what, allocatable(l, hca), len(held[hca]), want, counted(l, hca))
				}
			}
			for range 3 {
				l.Hold(held)
				l.Update(cards("c"))
				free("two in their containers", 1)
			}
			if _, err := l.Allocate(hca, []string{"a"}); err == nil || !strings.Contains(err.Error(), "out of the node's sight") {
				t.Errorf("a card out of sight: %v", err)
			}
			if _, err := l.Allocate(hca, []string{"c"}); err != nil {
				t.Errorf("the free one: %v", err)
			}
			held[hca] = []string{"b"}
			clock = clock.Add(holdTime)
			l.Hold(held)
			l.Update(cards("a", "c"))
			free("one given back", 2)
			held[hca] = nil
			l.Hold(held) // a kubelet that has just started reports no held units
			l.Update(cards("a", "c"))
			if n := allocatable(l, hca); n != 3 {
				t.Errorf("%d are allocatable just after the kubelet has started, want 3", n)
			}
			clock = clock.Add(holdTime)
			l.Hold(held)
			l.Update(cards("a", "c"))
			free("one given back and gone", 2)
		})
	}
}

// TestPreferManyShares: the cost of a preference grows linearly with the units, and not with
// their square: 16 cards of 1,000 shares once took 5 s.
func TestPreferManyShares(t *testing.T) {
	l := newLedger(t, "pools: [{kind: hca, sharing: shared, shares: 1000}]")
	var ids []string
	for i := range 16 {
		ids = append(ids, fmt.Sprintf("0000:%02x:00.0", i))
	}
	l.Update(cards(ids...))
	var units []string
	for _, u := range l.Units(hca) {
		units = append(units, u.ID)
	}
	var got []string
	allocations := testing.AllocsPerRun(1, func() { got = l.Prefer(hca, units, units[:1], len(units)) })
	if len(got) != len(units) {
		t.Fatalf("%d of %d units are preferred", len(got), len(units))
	}
	if allocations > 10*float64(len(units)) {
		t.Errorf("%.0f allocations for %d units", allocations, len(units))
	}
	for i, unit := range got[:16] {
		if want := fmt.Sprintf("0000:%02x:00.0::0", i); unit != want {
			t.Errorf("preference %d is %s, want %s", i, unit, want)
		}
	}
}

// TestNodeIsTold: a card that a container held before the agent started, and that was not
// visible, comes back. The kubelet receives its NUMA node, which was unknown before.
func TestNodeIsTold(t *testing.T) {
	l := newLedger(t, "pools: [{kind: hca}]")
	l.Hold(map[string][]string{hca: {"a"}})
	l.Update(nil)
	if u := l.Units(hca); len(u) != 1 || u[0].NUMA != inventory.NoNUMA || !u[0].Healthy {
		t.Fatalf("while it is held: %+v", u)
	}
	changes := l.Update(cards("a"))
	if u := l.Units(hca); len(u) != 1 || u[0].NUMA != 0 {
		t.Fatalf("when it is back: %+v", u)
	}
	if len(changes) != 1 {
		t.Errorf("changes %+v: the kubelet is not told", changes)
	}
	if changes := l.Update(cards("a")); len(changes) != 0 {
		t.Errorf("changes %+v when nothing has changed", changes)
	}
}
