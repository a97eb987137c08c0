// Package offer keeps the state of each resource: its devices, the number of their
// shares, their health, and what a container gets with them. It maps the devices of
// package inventory to the units that the kubelet counts, and owns which of them are
// used, held, withdrawn or unseen.
package offer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

// shareMark separates a device's ID and the number of a share.
const shareMark = "::"

// goneProblem is the problem of a device that the last scan did not see.
const goneProblem = "the device is gone"

// Unit is a unit that the kubelet counts: a device, or a share of one.
type Unit struct {
	ID      string
	NUMA    int // NUMA node of the device, or inventory.NoNUMA if the node is not known
	Healthy bool
}

// Change is a device whose health or NUMA node has changed.
type Change struct {
	Resource, ID, Name string
	Problems           []string // why the device cannot be used; empty: the device is healthy now
}

// Ledger is the state of all resources of a node. Its methods may be called
// concurrently; a lock is sufficient, since the kubelet asks once per container.
type Ledger struct {
	config *pool.Config

	mu        sync.Mutex
	resources []resource
	// withdrawn are the functions, by PCI address, that must not be allocated now. why
	// is the reason for the error.
	withdrawn []string
	why       string
	// held are the units of containers, and when the kubelet last reported them. known reports
	// whether it ever has.
	held  map[unit]time.Time
	known bool
	now   func() time.Time
	// guess is what the container that is being admitted probably holds already (see package
	// alloc): each resource that was allocated since one of them was allocated a second time,
	// which belongs to another container, and the NUMA nodes of all of them.
	guess struct {
		resources []string
		nodes     []int
	}
}

// resource is a pool with its devices. A device that was seen once stays, so that the
// kubelet learns that it is unhealthy.
type resource struct {
	pool    *pool.Pool
	devices []inventory.Device
	// used are the units that were allocated and that the kubelet has not reported as
	// available since. A released unit stays here until the kubelet asks for the resource
	// again. This only makes a preference less precise.
	used map[string]bool
	// unseen are the devices that a container holds and that the last scan did not
	// see: they are in the container's namespace. They count as healthy, since the
	// kubelet subtracts their holders' requests from the healthy ones; it gives them to
	// no other container before they are given back.
	unseen map[string]bool
}

// New returns the ledger of a configuration. It offers nothing before Update.
func New(config *pool.Config) *Ledger {
	l := &Ledger{config: config, held: map[unit]time.Time{}, now: time.Now}
	for i := range config.Pools {
		l.resources = append(l.resources, resource{pool: &config.Pools[i], used: map[string]bool{}})
	}
	return l
}

// Resources returns the names of the resources, in the order of the configuration.
func (l *Ledger) Resources() []string {
	names := make([]string, len(l.resources))
	for i := range l.resources {
		names[i] = l.resources[i].pool.Resource
	}
	return names
}

// Update applies a scan and returns the devices whose health has changed. A new healthy
// device, and a device whose NUMA node has become known, are changes too: the kubelet
// has to receive them.
func (l *Ledger) Update(all []inventory.Device) []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = l.without(all)
	held := map[string][]string{}
	for i := range l.resources {
		for j := range l.resources[i].devices {
			name := l.resources[i].pool.Resource
			held[name] = append(held[name], l.resources[i].devices[j].ID)
		}
		r := &l.resources[i]
		for _, id := range r.holds(l.held) {
			if !slices.Contains(held[r.pool.Resource], id) {
				held[r.pool.Resource] = append(held[r.pool.Resource], id)
			}
		}
	}
	var changes []Change
	for i, list := range l.config.Assign(all, held) {
		r := &l.resources[i]
		changes = append(changes, r.update(r.withheld(list, l.held), r.holds(l.held))...)
	}
	return changes
}

// Withdraw makes the next Update mark the devices behind these functions as unhealthy,
// instead of those withdrawn before. They are not allocated from then on.
func (l *Ledger) Withdraw(addresses []string, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withdrawn, l.why = addresses, why
}

// without returns the devices, with the problem added to those that are withdrawn.
func (l *Ledger) without(all []inventory.Device) []inventory.Device {
	if len(l.withdrawn) == 0 {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		d := &all[i]
		if slices.ContainsFunc(d.PCI, func(a string) bool { return slices.Contains(l.withdrawn, a) }) && !slices.Contains(d.Problems, l.why) {
			d.Problems = append(slices.Clip(d.Problems), l.why)
		}
	}
	return all
}

// update applies the devices of a scan, and those that containers hold.
func (r *resource) update(list []inventory.Device, held []string) []Change {
	var changes []Change
	r.unseen = map[string]bool{}
	for i := range r.devices {
		old := &r.devices[i]
		if !slices.ContainsFunc(list, same(old.ID)) {
			gone := *old
			gone.Problems = []string{goneProblem}
			if slices.Contains(held, old.ID) {
				gone.Problems, r.unseen[old.ID] = nil, true
			}
			list = append(list, gone)
		}
	}
	for _, id := range held { // devices of containers that were started before this agent
		if !slices.ContainsFunc(list, same(id)) {
			r.unseen[id] = true
			list = append(list, inventory.Device{ID: id, Kind: r.pool.Kind, Name: id, NUMA: inventory.NoNUMA})
		}
	}
	for i := range list {
		d := &list[i]
		j := slices.IndexFunc(r.devices, func(o inventory.Device) bool { return o.ID == d.ID })
		if j < 0 || r.devices[j].NUMA != d.NUMA || !slices.Equal(r.devices[j].Problems, d.Problems) {
			changes = append(changes, Change{Resource: r.pool.Resource, ID: d.ID, Name: d.Name, Problems: d.Problems})
		}
	}
	r.devices = list
	return changes
}

func same(id string) func(inventory.Device) bool {
	return func(d inventory.Device) bool { return d.ID == id }
}

// Units returns the units of a resource that the kubelet counts.
func (l *Ledger) Units(name string) []Unit {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(name)
	if r == nil {
		return nil
	}
	var units []Unit
	for i := range r.devices {
		d := &r.devices[i]
		for _, id := range r.unitIDs(d.ID) {
			units = append(units, Unit{ID: id, NUMA: d.NUMA, Healthy: d.Healthy()})
		}
	}
	return units
}

// Devices returns the devices of a resource, with their problems.
func (l *Ledger) Devices(name string) []inventory.Device {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.find(name); r != nil {
		return slices.Clone(r.devices)
	}
	return nil
}

func (l *Ledger) find(name string) *resource {
	for i := range l.resources {
		if l.resources[i].pool.Resource == name {
			return &l.resources[i]
		}
	}
	return nil
}

// unitIDs returns the IDs of a device's units.
func (r *resource) unitIDs(id string) []string {
	if r.pool.Sharing != pool.Shared {
		return []string{id}
	}
	ids := make([]string, r.shares())
	for i := range ids {
		ids[i] = fmt.Sprint(id, shareMark, i)
	}
	return ids
}

// unitsMax bounds the units of a resource. The kubelet accepts 4 MiB in one message, which is
// gRPC's default, and ends its watch of a plugin that sends more. A unit takes up to 64 bytes.
const unitsMax = 60_000

// shares returns the number of shares of each device that are offered to the kubelet.
func (r *resource) shares() int {
	return min(r.pool.Shares, max(unitsMax/max(len(r.devices), 1), 1))
}

// Cut reports how many of the configured shares of each device are offered, and whether
// these are fewer because the kubelet would not accept all.
func (l *Ledger) Cut(name string) (shares, of int, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(name)
	if r == nil || r.pool.Sharing != pool.Shared {
		return 0, 0, false
	}
	return r.shares(), r.pool.Shares, r.shares() < r.pool.Shares
}

// split returns the ID of the device of a unit. ok reports whether the resource uses
// IDs of this form.
func (r *resource) split(unit string) (id string, ok bool) {
	id, share, marked := strings.Cut(unit, shareMark)
	if r.pool.Sharing != pool.Shared {
		return unit, !marked
	}
	n, err := strconv.Atoi(share)
	return id, err == nil && n >= 0 && n < r.pool.Shares && share == strconv.Itoa(n)
}

// device returns the device of a unit.
func (r *resource) device(unit string) *inventory.Device {
	id, ok := r.split(unit)
	if !ok {
		return nil
	}
	for i := range r.devices {
		if r.devices[i].ID == id {
			return &r.devices[i]
		}
	}
	return nil
}
