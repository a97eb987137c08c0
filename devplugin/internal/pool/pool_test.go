package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

// assigned formats the devices of each pool, one line per pool.
func assigned(c *Config, all []inventory.Device, held map[string][]string) string {
	var b strings.Builder
	for i, list := range c.Assign(all, held) {
		b.WriteString(c.Pools[i].Resource + ":")
		for _, d := range list {
			b.WriteString(" " + d.Name)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAssign(t *testing.T) {
	n := sysfstest.NewNode(t)
	n.SoftRoCE()
	n.Bind(n.Channels[0], "ioatdma")
	all := inventory.Scan(n.FS()).Devices
	for name, c := range map[string]struct{ config, want string }{
		"one pool takes the rest of the other": {
			"pools: [{kind: hca, count: 2}, {kind: hca, resource: example.com/rest}]",
			"outrigger.dev/hca: mlx5_2 mlx5_3\nexample.com/rest: mlx5_1 rxe0\n",
		},
		"a physical function with virtual ones, by its kind": {
			"pools: [{kind: hca, select: {functions: [pf]}}]",
			"outrigger.dev/hca: mlx5_0 mlx5_1\n",
		},
		"a physical function with virtual ones, by its name": {
			"pools: [{kind: hca, select: {names: [mlx5_0]}}]",
			"outrigger.dev/hca: mlx5_0\n",
		},
		"virtual functions of one interface": {
			"pools: [{kind: hca, select: {functions: [vf], pfs: [ens1f0np0]}}]",
			"outrigger.dev/hca: mlx5_2 mlx5_3\n",
		},
		"link type, software": {
			"pools: [{kind: hca, select: {linkTypes: [infiniband]}}, {kind: hca, resource: a.b/c, select: {functions: [software]}}]",
			"outrigger.dev/hca: mlx5_1\na.b/c: rxe0\n",
		},
		"vendor, product, driver, NUMA node": {
			`pools: [{kind: hca, select: {vendors: ["15b3"], products: ["101d", "1017"], drivers: [mlx5_core], numa: [1]}}]`,
			"outrigger.dev/hca: mlx5_1\n",
		},
		"by name and by address": {
			`pools: [{kind: hca, select: {names: [mlx5_3, "0000:d8:00.0"]}}]`,
			"outrigger.dev/hca: mlx5_3 mlx5_1\n",
		},
		"a channel that the host uses is not offered": {
			"pools: [{kind: ioat, select: {numa: [0]}}]",
			"outrigger.dev/ioat: 0000:00:04.1 0000:00:04.2 0000:00:04.3\n",
		},
		"a shared pool has shared queues only": {
			"pools: [{kind: dsa, sharing: shared, shares: 4}, {kind: dsa, resource: a.b/own, select: {modes: [dedicated], labels: [outrigger]}}]",
			"outrigger.dev/dsa: wq0.1 wq2.1\na.b/own: wq0.0 wq2.0\n",
		},
	} {
		if diff := cmp.Diff(c.want, assigned(mustParse(t, c.config), all, nil)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestAssignIsSteady: a device that appears or disappears moves no other device to another
// resource.
func TestAssignIsSteady(t *testing.T) {
	n := sysfstest.NewNode(t)
	c := mustParse(t, "pools: [{kind: hca, count: 2, select: {functions: [pf, vf]}}, {kind: hca, resource: example.com/rest, select: {functions: [pf, vf, software]}}]")
	held := map[string][]string{}
	for i, list := range c.Assign(inventory.Scan(n.FS()).Devices, nil) {
		for _, d := range list {
			held[c.Pools[i].Resource] = append(held[c.Pools[i].Resource], d.ID)
		}
	}
	n.Unplug(n.PF)
	all := inventory.Scan(n.FS()).Devices
	want := "outrigger.dev/hca: mlx5_2\nexample.com/rest: mlx5_3 mlx5_1\n"
	if diff := cmp.Diff(want, assigned(c, all, held)); diff != "" {
		t.Errorf("after the first device went: %s", diff)
	}
	n.HCA(&sysfstest.Adapter{Name: "aaa0", LinkType: "Ethernet", Netdev: "eth0", Verbs: 7, GID: "fe80::1"})
	want = "outrigger.dev/hca: mlx5_2\nexample.com/rest: mlx5_3 mlx5_1 aaa0\n"
	if diff := cmp.Diff(want, assigned(c, inventory.Scan(n.FS()).Devices, held)); diff != "" {
		t.Errorf("after another came: %s", diff)
	}
}

// TestHostUse: devices that the node itself uses are not offered, unless the pool includes
// them. A device that was offered before stays.
func TestHostUse(t *testing.T) {
	n := sysfstest.NewNode(t)
	n.Link("sys/class/net/ib0/device", "sys/bus/pci/devices/"+n.InfiniBand.Function.Address)
	n.Set("proc/1/net/route", "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\nib0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\n")
	all := inventory.Scan(n.FS()).Devices
	for config, want := range map[string]string{
		"pools: [{kind: hca}]":                                "outrigger.dev/hca: mlx5_2 mlx5_3\n",
		"pools: [{kind: hca, hostUse: exclude}]":              "outrigger.dev/hca: mlx5_2 mlx5_3\n",
		"pools: [{kind: hca, hostUse: include}]":              "outrigger.dev/hca: mlx5_2 mlx5_3 mlx5_1\n",
		"pools: [{kind: hca, select: {names: [mlx5_1]}}]":     "outrigger.dev/hca: mlx5_1\n",
		"pools: [{kind: hca, select: {functions: [pf, vf]}}]": "outrigger.dev/hca: mlx5_0 mlx5_2 mlx5_3\n",
	} {
		if diff := cmp.Diff(want, assigned(mustParse(t, config), all, nil)); diff != "" {
			t.Errorf("%s: %s", config, diff)
		}
	}
	held := map[string][]string{"outrigger.dev/hca": {n.InfiniBand.Function.Address}}
	if diff := cmp.Diff("outrigger.dev/hca: mlx5_2 mlx5_3 mlx5_1\n", assigned(mustParse(t, "pools: [{kind: hca}]"), all, held)); diff != "" {
		t.Errorf("held: %s", diff)
	}
	for config, want := range map[string]string{
		"pools: [{kind: hca, hostUse: maybe}]":   `pools[0].hostUse: "maybe" is neither`,
		"pools: [{kind: dsa, hostUse: include}]": "pools[0].hostUse: only hca devices",
	} {
		if _, err := Parse([]byte(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

func TestDefaultOffersEverything(t *testing.T) {
	n := sysfstest.NewNode(t)
	for i, list := range Default().Assign(inventory.Scan(n.FS()).Devices, nil) {
		if want := []int{3, 8, 4}[i]; len(list) != want {
			t.Errorf("%s has %d devices, want %d", Default().Pools[i].Resource, len(list), want)
		}
	}
	if err := Default().validate(); err != nil {
		t.Error(err)
	}
}

// TestRefused: the error of each contradiction has the path of the field.
func TestRefused(t *testing.T) {
	for config, want := range map[string]string{
		"{}":                                "pools: no pool",
		"pools: [{kind: gpu}]":              `pools[0].kind: "gpu" is not a kind; the kinds are [hca ioat dsa ether]`,
		"pools: [{kind: hca, colour: 1}]":   `unknown field "colour"`,
		"pools: [{kind: hca, kind: dsa}]":   `key "kind" already set`,
		"pools: [{kind: hca}, {kind: hca}]": "pools[1].resource: outrigger.dev/hca is pools[0]'s already",
		"pools: [{kind: hca}, {kind: hca, resource: b.c/hca}]":                           "pools[1].resource: a container could not tell",
		"pools: [{kind: hca, resource: a-b/c}, {kind: dsa, resource: a/b-c}]":            "pools[1].resource: the files of a/b-c and of pools[0]'s a-b/c would both be called a-b-c",
		"pools: [{kind: hca, resource: hca}]":                                            "pools[0].resource: \"hca\" is not a resource name",
		"pools: [{kind: hca, resource: x.kubernetes.io/hca}]":                            "outside kubernetes.io",
		"pools: [{kind: hca, count: -1}]":                                                "pools[0].count",
		"pools: [{kind: hca, shares: 2}]":                                                "pools[0].shares: 2 shares of an exclusive device",
		"pools: [{kind: hca, sharing: shared}]":                                          "pools[0].shares: 0 is not a number of shares",
		"pools: [{kind: hca, sharing: often}]":                                           "pools[0].sharing",
		"pools: [{kind: ioat, sharing: shared, shares: 2}]":                              "pools[0].sharing: an I/OAT channel has one user",
		"pools: [{kind: dsa, sharing: shared, shares: 2, select: {modes: [dedicated]}}]": "pools[0].select.modes",
		"pools: [{kind: ioat, rdmaCM: true}]":                                            "pools[0].rdmaCM",
		`pools: [{kind: hca, select: {vendors: ["0x15B3"]}}]`:                            "pools[0].select.vendors[0]",
		"pools: [{kind: hca, select: {linkTypes: [ib]}}]":                                "pools[0].select.linkTypes[0]",
		"pools: [{kind: hca, select: {numa: [-2]}}]":                                     "pools[0].select.numa[0]",
		"pools: [{kind: ioat, select: {pfs: [eth0]}}]":                                   "pools[0].select: pfs",
		"pools: [{kind: hca, select: {modes: [shared]}}]":                                "pools[0].select: modes",
		"pools: [{kind: hca}]\nsriov: [{pf: eth0}]":                                      "sriov[0].count: 0",
		"pools: [{kind: hca}]\nsriov: [{pf: ../x, count: 1}]":                            "sriov[0].pf",
		"pools: [{kind: hca}]\nsriov: [{pf: a, count: 1}, {pf: a, count: 2}]":            "sriov[1].pf",
		"pools: [{kind: hca}]\nsriov: [{pf: a, count: 1, trust: yes}]":                   "sriov[0].trust",
		"pools: [{kind: hca}]\nsriov: [{pf: a, count: 1, resize: now}]":                  "sriov[0].resize",
		"pools: [{kind: hca}]\nsriov: [{pf: a, count: 1, addresses: random}]":            "sriov[0].addresses",
		"pools: [" + strings.Repeat("{kind: hca},", poolsMax+1) + "]":                    "at most",
		"pools: 3": "cannot unmarshal",
	} {
		_, err := Parse([]byte(config))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", config, err, want)
		}
	}
}

// FuzzParse: an accepted configuration is valid and can be applied.
func FuzzParse(f *testing.F) {
	f.Add("pools: [{kind: hca, count: 2, rdmaCM: true}]")
	f.Add("pools: [{kind: dsa, sharing: shared, shares: 4, select: {modes: [shared]}}]\nsriov: [{pf: eth0, count: 4, trust: enabled}]")
	f.Add(`{"pools":[{"kind":"ioat","select":{"numa":[0,-1]}}]}`)
	f.Add("pools: [{kind: ether}, {kind: ether, interface: net1, resource: a.b/c, shares: 7}]")
	n := sysfstest.NewNode(f)
	found := inventory.Scan(n.FS()).Devices
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse([]byte(text))
		if err != nil {
			return
		}
		seen := map[string]bool{}
		all := slices.Concat(found, c.EtherDevices(nil))
		for i, list := range c.Assign(all, nil) {
			if p := &c.Pools[i]; p.Kind == inventory.Ether && len(list) != 1 {
				t.Errorf("pool %d of the kind ether has %d devices", i, len(list))
			}
			if limit := c.Pools[i].Count; limit > 0 && len(list) > limit {
				t.Errorf("pool %d has %d devices", i, len(list))
			}
			for _, d := range list {
				if key := fmt.Sprint(d.Kind, d.ID); seen[key] {
					t.Errorf("%s is in two pools", key)
				} else {
					seen[key] = true
				}
			}
		}
	})
}
