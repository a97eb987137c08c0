package offer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

func newLedger(t *testing.T, config string) *Ledger {
	t.Helper()
	c, err := pool.Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return New(c)
}

func scan(n *sysfstest.Node) []inventory.Device { return inventory.Scan(n.FS()).Devices }

// counted formats a resource as the kubelet counts it; ! marks an unhealthy unit.
func counted(l *Ledger, name string) string {
	var words []string
	for _, u := range l.Units(name) {
		word := fmt.Sprintf("%s@%d", u.ID, u.NUMA)
		if !u.Healthy {
			word = "!" + word
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestHealth: a cable, a driver and a queue fail and recover, and each step is one change for
// the log.
func TestHealth(t *testing.T) {
	n := sysfstest.NewNode(t)
	l := newLedger(t, "pools: [{kind: hca, select: {functions: [pf]}}, {kind: ioat, select: {names: ['0000:00:04.0']}}, {kind: dsa, select: {names: [wq0.0]}}]")
	step := func(what string, want string) {
		t.Helper()
		var got []string
		for _, c := range l.Update(scan(n)) {
			got = append(got, fmt.Sprintf("%s %v", c.Name, c.Problems))
		}
		if s := strings.Join(got, "; "); s != want {
			t.Errorf("%s: %q, want %q", what, s, want)
		}
	}
	step("start", "mlx5_0 []; mlx5_1 []; 0000:00:04.0 []; wq0.0 []")
	step("nothing happened", "")
	n.Port(n.PF, "1: DOWN", "2: Polling")
	step("cable pulled", "mlx5_0 [port 1 is down (polling)]")
	if got, want := counted(l, "outrigger.dev/hca"), "!0000:3b:00.0@0 0000:d8:00.0@1"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
	n.Port(n.PF, "4: ACTIVE", "5: LinkUp")
	step("cable back", "mlx5_0 []")
	n.Unplug(n.InfiniBand)
	step("driver unloaded", "mlx5_1 [the device is gone]")
	n.Tree.Remove("sys/bus/pci/devices/" + n.InfiniBand.Function.Address)
	step("still gone", "")
	n.Bind(n.Channels[0], "ioatdma")
	n.QueueState(n.Accelerators[0], 0, "disabled")
	step("engines taken back", "0000:00:04.0 [the device is gone]; wq0.0 [the work queue is disabled]")
	n.Bind(n.Channels[0], "vfio-pci")
	n.QueueState(n.Accelerators[0], 0, "enabled")
	step("engines back", "0000:00:04.0 []; wq0.0 []")
}

// TestWithdrawn: functions that are about to be removed are not allocated, and are offered
// again later.
func TestWithdrawn(t *testing.T) {
	n := sysfstest.NewNode(t)
	l := newLedger(t, "pools: [{kind: hca, select: {functions: [vf]}}]")
	l.Update(scan(n))
	step := func(want string, changes int) {
		t.Helper()
		if c := l.Update(scan(n)); len(c) != changes {
			t.Errorf("%d changes, want %d: %v", len(c), changes, c)
		}
		if got := counted(l, "outrigger.dev/hca"); got != want {
			t.Errorf("counted %q, want %q", got, want)
		}
	}
	l.Withdraw([]string{n.VFs[0].Function.Address}, "about to go")
	step("!0000:3b:00.2@0 0000:3b:00.3@0", 1)
	step("!0000:3b:00.2@0 0000:3b:00.3@0", 0)
	if _, err := l.Allocate("outrigger.dev/hca", []string{"0000:3b:00.2"}); err == nil || !strings.Contains(err.Error(), "about to go") {
		t.Errorf("allocated: %v", err)
	}
	l.Withdraw(nil, "")
	step("0000:3b:00.2@0 0000:3b:00.3@0", 1)
}

// TestBeforeTheDriver: if the plugin starts before the drivers, the absence of devices is not
// an error.
func TestBeforeTheDriver(t *testing.T) {
	l := New(pool.Default())
	if changes := l.Update(inventory.Scan(sysfstest.New(t).FS()).Devices); changes != nil || l.Units("outrigger.dev/hca") != nil {
		t.Errorf("an empty node has %v", changes)
	}
	l.Update(scan(sysfstest.NewNode(t)))
	if got := len(l.Units("outrigger.dev/hca")); got != 3 {
		t.Errorf("%d devices after the driver came", got)
	}
}

func TestHandout(t *testing.T) {
	n := sysfstest.NewNode(t)
	l := newLedger(t, "pools: [{kind: hca, rdmaCM: true}, {kind: ioat}, {kind: dsa, sharing: shared, shares: 2}]")
	l.Update(scan(n))
	for _, c := range []struct {
		resource string
		units    string
		files    string
		env      string
	}{
		{
			"outrigger.dev/hca", "0000:3b:00.2 0000:3b:00.3", "infiniband/uverbs2 infiniband/rdma_cm infiniband/uverbs3",
			`[{"kind":"hca","name":"mlx5_2","pci":["0000:3b:00.2"],"numa":0,"files":["/dev/infiniband/uverbs2","/dev/infiniband/rdma_cm"],"linkType":"ethernet"},` +
				`{"kind":"hca","name":"mlx5_3","pci":["0000:3b:00.3"],"numa":0,"files":["/dev/infiniband/uverbs3","/dev/infiniband/rdma_cm"],"linkType":"ethernet"}]`,
		},
		{
			"outrigger.dev/ioat", "0000:80:04.1 0000:80:04.2", "vfio/vfio vfio/41 vfio/42",
			`[{"kind":"ioat","name":"0000:80:04.1","pci":["0000:80:04.1"],"numa":1,"files":["/dev/vfio/vfio","/dev/vfio/41"]},` +
				`{"kind":"ioat","name":"0000:80:04.2","pci":["0000:80:04.2"],"numa":1,"files":["/dev/vfio/vfio","/dev/vfio/42"]}]`,
		},
		{
			"outrigger.dev/dsa", "0000:6a:01.0-wq1::0 0000:6a:01.0-wq1::1", "dsa/wq0.1",
			`[{"kind":"dsa","name":"wq0.1","pci":["0000:6a:01.0"],"numa":0,"files":["/dev/dsa/wq0.1"],"shared":true}]`,
		},
	} {
		h, err := l.Allocate(c.resource, strings.Fields(c.units))
		if err != nil {
			t.Errorf("%s: %v", c.resource, err)
			continue
		}
		if diff := cmp.Diff(strings.Fields(c.files), h.Files); diff != "" {
			t.Errorf("%s: files %s", c.resource, diff)
		}
		if diff := cmp.Diff(map[string]string{devices.Env(c.resource): c.env}, h.Env); diff != "" {
			t.Errorf("%s: env %s", c.resource, diff)
		}
		if _, err := devices.FromEnv([]string{devices.Env(c.resource) + "=" + h.Env[devices.Env(c.resource)]}); err != nil {
			t.Errorf("the sidecar cannot read what it was told: %v", err)
		}
	}
}

func TestRefused(t *testing.T) {
	n := sysfstest.NewNode(t)
	n.Port(n.PF, "1: DOWN", "3: Disabled")
	l := newLedger(t, "pools: [{kind: hca, sharing: shared, shares: 2, select: {functions: [pf, vf]}}]")
	l.Update(scan(n))
	for unit, want := range map[string]string{
		"0000:3b:00.0::0": "port 1 is down (disabled)",
		"0000:3b:00.2::2": "has no device",
		"0000:3b:00.2":    "has no device",
		"mlx5_2::0":       "has no device",
	} {
		if _, err := l.Allocate("outrigger.dev/hca", []string{unit}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", unit, err, want)
		}
	}
	if _, err := l.Allocate("outrigger.dev/ioat", nil); err == nil {
		t.Error("a resource that is not configured was allocated")
	}
	if l.Prefer("outrigger.dev/ioat", []string{"a"}, nil, 1) != nil || l.Units("outrigger.dev/ioat") != nil {
		t.Error("a resource that is not configured has devices")
	}
}

// TestOneNode: if a pod has an HCA on node 1, its channel is also chosen on node 1, and an HCA
// is chosen on a node with channels.
func TestOneNode(t *testing.T) {
	n := sysfstest.NewNode(t)
	l := newLedger(t, "pools: [{kind: hca}, {kind: ioat}]")
	l.Update(scan(n))
	channels := []string{"0000:00:04.0", "0000:00:04.1", "0000:80:04.0", "0000:80:04.1"}
	if _, err := l.Allocate("outrigger.dev/hca", []string{"0000:d8:00.0"}); err != nil {
		t.Fatal(err)
	}
	if got := l.Prefer("outrigger.dev/ioat", channels, nil, 1); got[0] != "0000:80:04.0" {
		t.Errorf("the HCA is on node 1, the channel is %s", got[0])
	}
	if _, err := l.Allocate("outrigger.dev/ioat", []string{"0000:80:04.0"}); err != nil {
		t.Fatal(err)
	}
	// The first request of the next pod prefers the node of the last pod's channel, which is
	// as good as any other node. If node 1 has no channels, node 0 is better.
	for _, c := range n.Channels[4:] {
		n.Bind(c, "ioatdma")
	}
	l = newLedger(t, "pools: [{kind: hca}, {kind: ioat}]")
	l.Update(scan(n))
	if got := l.Prefer("outrigger.dev/hca", []string{"0000:d8:00.0", "0000:3b:00.2"}, nil, 1); got[0] != "0000:3b:00.2" {
		t.Errorf("channels are on node 0 only, the HCA is %s", got[0])
	}
}

// TestOneNodeToTheLast: as many containers as there are HCAs ask for an HCA and a channel,
// with the resources in any order. Each container gets both from one node, including the last
// ones, for which a node has only one device of a kind left.
func TestOneNodeToTheLast(t *testing.T) {
	const hca, ioat = "outrigger.dev/hca", "outrigger.dev/ioat"
	for orders := range 16 {
		l := newLedger(t, "pools: [{kind: hca, select: {functions: [pf, vf]}}, {kind: ioat}]")
		l.Update(scan(sysfstest.NewNode(t)))
		free := map[string][]string{}
		for _, resource := range []string{hca, ioat} {
			for _, u := range l.Units(resource) {
				free[resource] = append(free[resource], u.ID)
			}
		}
		for pod := range 4 {
			order := []string{hca, ioat}
			if orders>>pod&1 == 1 {
				order = []string{ioat, hca}
			}
			nodes := map[int]bool{}
			for _, resource := range order {
				ids := l.Prefer(resource, free[resource], nil, 1)
				h, err := l.Allocate(resource, ids)
				if err != nil {
					t.Fatal(err)
				}
				free[resource] = slices.DeleteFunc(free[resource], func(id string) bool { return id == ids[0] })
				told, err := devices.FromEnv([]string{devices.Env(resource) + "=" + h.Env[devices.Env(resource)]})
				if err != nil {
					t.Fatal(err)
				}
				nodes[told[0].NUMA] = true
			}
			if len(nodes) != 1 {
				t.Errorf("orders %04b: container %d has devices of two nodes", orders, pod)
			}
		}
	}
}

// TestGivenBack: a released unit counts as free once the kubelet reports it as available.
func TestGivenBack(t *testing.T) {
	n := sysfstest.NewNode(t)
	l := newLedger(t, "pools: [{kind: hca, sharing: shared, shares: 2}, {kind: ioat}]")
	l.Update(scan(n))
	units := []string{"0000:d8:00.0::0", "0000:d8:00.0::1"}
	channels := []string{"0000:00:04.0", "0000:80:04.0"}
	want := func(channel string) {
		t.Helper()
		l.guess.nodes = nil // another container
		if got := l.Prefer("outrigger.dev/ioat", channels[1:], nil, 1); got[0] != channels[1] {
			t.Errorf("preferred %s where nothing else is", got[0])
		}
		if got := l.Prefer("outrigger.dev/ioat", slices.Concat(channels, []string{"0000:00:04.1"}), nil, 1); got[0] != channel {
			t.Errorf("preferred %s, want %s", got[0], channel)
		}
	}
	if _, err := l.Allocate("outrigger.dev/hca", units[:1]); err != nil {
		t.Fatal(err)
	}
	want(channels[1]) // a share of node 1's card is left, and node 1 has fewer free channels
	if _, err := l.Allocate("outrigger.dev/hca", units[1:]); err != nil {
		t.Fatal(err)
	}
	want(channels[0])
	l.Prefer("outrigger.dev/hca", units[1:], nil, 1)
	want(channels[1])
}

// TestFiles: a container may be restarted while its device is unhealthy, but not if the device
// is gone.
func TestFiles(t *testing.T) {
	n := sysfstest.NewNode(t)
	l := newLedger(t, "pools: [{kind: hca, select: {functions: [pf]}}]")
	l.Update(scan(n))
	n.Port(n.PF, "1: DOWN", "3: Disabled")
	n.Unplug(n.InfiniBand)
	l.Update(scan(n))
	if diff := cmp.Diff(map[string][]string{"0000:3b:00.0": {"infiniband/uverbs0"}}, l.Files("outrigger.dev/hca")); diff != "" {
		t.Error(diff)
	}
}

// TestEther: packet sockets are offered as shares on no NUMA node, and a container gets the
// interface's name and no file. They do not change which card a container prefers, and a
// container gets none while the agent can make none.
func TestEther(t *testing.T) {
	c, err := pool.Parse([]byte("pools: [{kind: hca}, {kind: ether, interface: net1, shares: 3}]"))
	if err != nil {
		t.Fatal(err)
	}
	l := New(c)
	n := sysfstest.NewNode(t)
	n.SoftRoCE()
	l.Update(append(scan(n), c.EtherDevices(nil)...))
	if got, want := counted(l, "outrigger.dev/ether"), "ether-net1::0@-1 ether-net1::1@-1 ether-net1::2@-1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	h, err := l.Allocate("outrigger.dev/ether", []string{"ether-net1::2"})
	if err != nil {
		t.Fatal(err)
	}
	given, err := devices.FromEnv([]string{"OUTRIGGER_DEVICES_ETHER=" + h.Env["OUTRIGGER_DEVICES_ETHER"]})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]devices.Device{{Kind: devices.KindEther, Name: "net1", NUMA: -1, Shared: true}}, given); diff != "" || len(h.Files) > 0 {
		t.Errorf("files %v, %s", h.Files, diff)
	}
	if got := l.Prefer("outrigger.dev/hca", []string{"rxe0", "0000:3b:00.2"}, nil, 1); len(got) != 1 || got[0] != "0000:3b:00.2" {
		t.Errorf("after a socket a container prefers %v", got)
	}
	if files := l.Files("outrigger.dev/ether"); len(files) > 0 {
		t.Errorf("described: %v", files)
	}
	changes := l.Update(append(scan(n), c.EtherDevices([]string{"the agent has no CAP_NET_RAW"})...))
	if len(changes) != 1 || changes[0].ID != "ether-net1" {
		t.Errorf("%v", changes)
	}
	if _, err := l.Allocate("outrigger.dev/ether", []string{"ether-net1::0"}); err == nil || !strings.Contains(err.Error(), "has no CAP_NET_RAW") {
		t.Errorf("%v", err)
	}
}
