package pool

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
)

// kinds lists every kind of a pool.
var kinds = append(slices.Clip(inventory.Kinds), inventory.Ether)

// etherShares is the default of shares for ether. A packet socket uses up nothing of the node,
// so that the number should not limit what the node runs: 110 is the number of pods that a
// kubelet admits by default (KubeletConfiguration, maxPods).
const etherShares = 110

// interfaceName matches the names that container network plugins give to interfaces. Linux
// allows more characters; those that are left out have a meaning in some configuration.
var interfaceName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,15}$`)

// interfacesRefused are names that match and that no Ethernet interface has: Linux reserves
// the names of its directories of settings.
var interfacesRefused = []string{".", "..", "lo", "all", devices.DefaultInterface}

// completeEther sets the defaults of a pool of the kind ether.
func (p *Pool) completeEther() {
	p.Sharing = cmp.Or(p.Sharing, Shared)
	p.Shares = cmp.Or(p.Shares, etherShares)
}

// etherID returns the ID of the pool's one device, which is different for each interface.
func (p *Pool) etherID() string {
	if p.Interface == "" {
		return string(inventory.Ether)
	}
	return string(inventory.Ether) + "-" + p.Interface
}

// EtherDevices returns the devices of the pools of the kind ether, one for each. problems are
// why the agent can make no packet socket now.
func (c *Config) EtherDevices(problems []string) []inventory.Device {
	var list []inventory.Device
	for i := range c.Pools {
		if p := &c.Pools[i]; p.Kind == inventory.Ether {
			list = append(list, inventory.Device{
				ID: p.etherID(), Kind: inventory.Ether, Name: cmp.Or(p.Interface, devices.DefaultInterface), NUMA: inventory.NoNUMA, Problems: problems,
			})
		}
	}
	return list
}

// validateEther reports the contradictions of a pool of the kind ether.
func (p *Pool) validateEther(path string) []error {
	var problems []error
	add := func(field, format string, args ...any) {
		problems = append(problems, at(path+field, format, args...))
	}
	if p.Interface != "" && (!interfaceName.MatchString(p.Interface) || slices.Contains(interfacesRefused, p.Interface)) {
		add(".interface", "%q is not the name of an Ethernet interface of a pod, such as net1; leave it empty for the interface with the pod's default route", p.Interface)
	}
	if !reflect.ValueOf(p.Select).IsZero() {
		add(".select", "ether has no devices to select among; use interface")
	}
	if p.Count != 0 {
		add(".count", "ether has one device; use shares for the number of containers")
	}
	if p.Sharing != Shared {
		add(".sharing", "%q, but ether is always shared; remove sharing", p.Sharing)
	}
	if p.Placement != "" {
		add(".placement", "ether has one device, so that there is nothing to place; remove placement")
	}
	if p.Shares < 2 || p.Shares > sharesMax {
		add(".shares", "%d is not a number of shares from 2 to %d", p.Shares, sharesMax)
	}
	return problems
}

// validateInterfaces reports pools of the kind ether with one interface: containers of both
// would get the same sockets.
func (c *Config) validateInterfaces() []error {
	var problems []error
	seen := map[string]int{}
	for i := range c.Pools {
		p := &c.Pools[i]
		if p.Kind != inventory.Ether {
			continue
		}
		if first, twice := seen[p.Interface]; twice {
			problems = append(problems, at(fmt.Sprintf("pools[%d].interface", i), "%q is pools[%d]'s already; remove one of the pools", p.Interface, first))
			continue
		}
		seen[p.Interface] = i
	}
	return problems
}
