package pool

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
)

// Assign assigns devices to the pools. The result has one list for each pool, in the order of
// the configuration. A device is in at most one list.
//
// held are the IDs that each resource has offered before. A pool keeps its held devices before
// it adds new ones, so that a device that appears or disappears moves no other device to
// another resource while pods run.
func (c *Config) Assign(all []inventory.Device, held map[string][]string) [][]inventory.Device {
	taken := map[string]bool{}
	lists := make([][]inventory.Device, len(c.Pools))
	for i := range c.Pools {
		lists[i] = c.Pools[i].retainHeld(all, held[c.Pools[i].Resource], taken)
	}
	for i := range c.Pools {
		lists[i] = c.Pools[i].addDevices(lists[i], all, len(held[c.Pools[i].Resource]), taken)
	}
	return lists
}

// retainHeld returns the devices that the pool holds and that still match it.
func (p *Pool) retainHeld(all []inventory.Device, held []string, taken map[string]bool) []inventory.Device {
	var kept []inventory.Device
	for i := range all {
		d := &all[i]
		if slices.Contains(held, d.ID) && !taken[d.ID] && p.Matches(d) {
			taken[d.ID] = true
			kept = append(kept, *d)
		}
	}
	return kept
}

// addDevices adds devices up to the pool's count. Held devices that are gone count
// too: they are expected back.
func (p *Pool) addDevices(list, all []inventory.Device, held int, taken map[string]bool) []inventory.Device {
	room := len(all)
	if p.Count > 0 {
		room = p.Count - max(held, len(list))
	}
	for i := range all {
		d := &all[i]
		if room > 0 && !taken[d.ID] && p.Matches(d) && p.spared(d) {
			taken[d.ID] = true
			list = append(list, *d)
			room--
		}
	}
	slices.SortFunc(list, func(a, b inventory.Device) int {
		return slices.IndexFunc(all, same(a)) - slices.IndexFunc(all, same(b))
	})
	return list
}

func same(d inventory.Device) func(inventory.Device) bool {
	return func(other inventory.Device) bool { return other.ID == d.ID }
}

// Matches reports whether the pool selects a device, regardless of the other pools. The health
// of the device does not matter, so that an unplugged cable moves no device.
func (p *Pool) Matches(d *inventory.Device) bool {
	s := &p.Select
	if p.Kind != d.Kind || !p.usable(d) {
		return false
	}
	if p.Kind == inventory.Ether {
		return d.ID == p.etherID()
	}
	if !among(s.Vendors, d.Vendor) || !among(s.Products, d.Product) || !among(s.Drivers, d.Driver) || !among(s.NUMA, d.NUMA) {
		return false
	}
	if !overlap(s.Names, append([]string{d.Name}, d.PCI...)) {
		return false
	}
	switch {
	case d.RDMA != nil:
		return overlap(s.PFs, d.RDMA.PF) && among(s.Functions, d.RDMA.Function) &&
			(len(s.LinkTypes) == 0 || slices.ContainsFunc(s.LinkTypes, d.RDMA.HasLinkType))
	case d.Queue != nil:
		return among(s.Modes, d.Queue.Mode) && among(s.Labels, d.Queue.Label)
	}
	return true
}

// spared reports whether a device that is new to the pool may be offered although the node may
// use it itself. A device that the pool has offered before stays, because a container may hold
// it.
func (p *Pool) spared(d *inventory.Device) bool {
	return len(d.HostUse) == 0 || p.HostUse == HostUseInclude || len(p.Select.Names) > 0
}

// usable reports whether a device can be allocated in the way of this pool. It excludes an
// I/OAT function that the host itself uses, a dedicated queue in a shared pool, and a physical
// function whose virtual functions are offered, unless the pool selects it by its kind of
// function or its name.
func (p *Pool) usable(d *inventory.Device) bool {
	switch d.Kind {
	case inventory.HCA:
		asked := slices.Contains(p.Select.Functions, inventory.Physical) || len(p.Select.Names) > 0
		return d.RDMA == nil || d.RDMA.Function != inventory.Physical || d.RDMA.VFs == 0 || asked
	case inventory.IOAT:
		return d.Driver == "vfio-pci"
	case inventory.DSA:
		return p.Sharing != Shared || d.Queue.Mode == "shared"
	}
	return true
}

// among reports whether a list has the value, or is empty.
func among[T comparable](list []T, value T) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

func overlap(list, values []string) bool {
	return len(list) == 0 || slices.ContainsFunc(values, func(v string) bool { return slices.Contains(list, v) })
}
