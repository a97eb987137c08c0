package pool

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

// TestEther: each pool of the kind ether has one device of its own, which the pools of other
// kinds do not get, and which a scan does not find.
func TestEther(t *testing.T) {
	c := mustParse(t, "pools: [{kind: ether}, {kind: hca}, {kind: ether, interface: net1, resource: a.b/net1, shares: 7}]")
	made := c.EtherDevices([]string{"no"})
	n := sysfstest.NewNode(t)
	all := append(inventory.Scan(n.FS()).Devices, made...)
	want := "outrigger.dev/ether: default\noutrigger.dev/hca: mlx5_2 mlx5_3 mlx5_1\na.b/net1: net1\n"
	if diff := cmp.Diff(want, assigned(c, all, nil)); diff != "" {
		t.Error(diff)
	}
	for i, want := range []string{"ether default -1 [no]", "ether-net1 net1 -1 [no]"} {
		d := &made[i]
		if got := fmt.Sprintf("%s %s %d %v", d.ID, d.Name, d.NUMA, d.Problems); got != want || d.Kind != inventory.Ether {
			t.Errorf("%s of the kind %s, want %s", got, d.Kind, want)
		}
	}
	if first, second := &c.Pools[0], &c.Pools[2]; first.Sharing != Shared || first.Shares != 110 || second.Shares != 7 {
		t.Errorf("%+v, %+v", first, second)
	}
	if list := Default().EtherDevices(nil); len(list) > 0 {
		t.Errorf("without a configuration there is %v", list)
	}
}

// TestEtherRefused: the error of each contradiction has the path of the field and what to do.
func TestEtherRefused(t *testing.T) {
	for config, want := range map[string]string{
		"pools: [{kind: ether, interface: a/b}]":                             `pools[0].interface: "a/b" is not the name`,
		"pools: [{kind: ether, interface: sixteen-letters-}]":                "pools[0].interface",
		"pools: [{kind: ether, interface: lo}]":                              "pools[0].interface",
		"pools: [{kind: ether, interface: ..}]":                              "pools[0].interface",
		"pools: [{kind: ether, interface: default}]":                         "pools[0].interface",
		"pools: [{kind: ether, interface: 'net1::3'}]":                       "pools[0].interface",
		"pools: [{kind: hca, interface: net1}]":                              "pools[0].interface: only ether has an interface, this is an hca pool",
		"pools: [{kind: ether, select: {names: [net1]}}]":                    "pools[0].select: ether has no devices to select among; use interface",
		"pools: [{kind: ether, select: {numa: [0]}}]":                        "pools[0].select",
		"pools: [{kind: ether, count: 2}]":                                   "pools[0].count: ether has one device; use shares",
		"pools: [{kind: ether, sharing: exclusive}]":                         `pools[0].sharing: "exclusive", but ether is always shared`,
		"pools: [{kind: ether, sharing: often}]":                             "pools[0].sharing",
		"pools: [{kind: ether, placement: pack}]":                            "pools[0].placement: ether has one device",
		"pools: [{kind: ether, shares: 1}]":                                  "pools[0].shares: 1 is not a number of shares from 2 to 1000",
		"pools: [{kind: ether, shares: -3}]":                                 "pools[0].shares",
		"pools: [{kind: ether, shares: 1001}]":                               "pools[0].shares",
		"pools: [{kind: ether, hostUse: include}]":                           "pools[0].hostUse",
		"pools: [{kind: ether, rdmaCM: true}]":                               "pools[0].rdmaCM",
		"pools: [{kind: ether}, {kind: ether}]":                              "pools[1].resource: outrigger.dev/ether is pools[0]'s already",
		"pools: [{kind: ether}, {kind: ether, resource: a.b/c}]":             `pools[1].interface: "" is pools[0]'s already`,
		"pools: [{kind: ether}, {kind: hca, resource: outrigger.dev/ether}]": "pools[1].resource",
	} {
		_, err := Parse([]byte(config))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}
