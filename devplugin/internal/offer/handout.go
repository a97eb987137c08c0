package offer

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/alloc"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

// rdmaCM is the file of the RDMA connection manager, relative to /dev. The files for
// management datagrams (umad, issm) are never allocated: a process with such a file can
// reconfigure the whole subnet.
const rdmaCM = "infiniband/rdma_cm"

// Handout is what a container gets for the units of one resource.
type Handout struct {
	// Devices are the IDs of the devices, each once.
	Devices []string
	// Files are device files relative to /dev, each once; none for ether.
	Files []string
	// Env is one variable, for the sidecar.
	Env map[string]string
}

// Prefer returns which of the available units a container should get.
func (l *Ledger) Prefer(name string, available, must []string, size int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(name)
	if r == nil {
		return nil
	}
	request := &alloc.Request{Must: must, Size: size, Partners: l.partners(r.pool.Kind), Spread: r.pool.Sharing == pool.Shared && r.pool.Placement != pool.Pack}
	if !slices.Contains(l.guess.resources, name) {
		request.Near = l.guess.nodes
	}
	for _, unit := range available {
		delete(r.used, unit)
		if d := r.device(unit); d != nil {
			request.Available = append(request.Available, alloc.Candidate{ID: unit, NUMA: d.NUMA, Hardware: d.ID})
		}
	}
	return alloc.Prefer(request)
}

// partners counts, on each NUMA node, the healthy devices that are used together with a device
// of the kind and that are not exhausted: an HCA's partners are the copy engines, and the
// reverse.
func (l *Ledger) partners(kind inventory.Kind) map[int]int {
	count := map[int]int{}
	for i := range l.resources {
		r := &l.resources[i]
		if (r.pool.Kind == inventory.HCA) == (kind == inventory.HCA) || r.pool.Kind == inventory.Ether {
			continue // packet sockets are on no NUMA node
		}
		for j := range r.devices {
			if d := &r.devices[j]; d.Healthy() && !r.exhausted(d) {
				count[r.devices[j].NUMA]++
			}
		}
	}
	return count
}

// exhausted reports whether every unit of a device is in use.
func (r *resource) exhausted(d *inventory.Device) bool {
	return !slices.ContainsFunc(r.unitIDs(d.ID), func(unit string) bool { return !r.used[unit] })
}

// Allocate returns what a container gets for the units. It refuses an unknown unit, and a unit
// whose device cannot work now: a pod that fails at once is started on another node, and a pod
// that hangs is not.
func (l *Ledger) Allocate(name string, units []string) (*Handout, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(name)
	if r == nil {
		return nil, fmt.Errorf("%s is not offered by this node", name)
	}
	h := &Handout{}
	var told []devices.Device
	var nodes []int
	for _, unit := range units {
		d := r.device(unit)
		switch {
		case d == nil:
			return nil, fmt.Errorf("%s has no device %q: the configuration or the hardware has changed", name, unit)
		case !d.Healthy():
			return nil, fmt.Errorf("device %s (%s) of %s cannot be used: %s", unit, d.Name, name, strings.Join(d.Problems, ", "))
		case r.unseen[d.ID]:
			return nil, fmt.Errorf("device %s (%s) of %s is out of the node's sight: the container that held it has not given it back; try again, or look at the pods that use %s", unit, d.Name, name, name)
		case slices.Contains(h.Devices, d.ID):
			continue // another share of a device that the container already has
		}
		h.Devices = append(h.Devices, d.ID)
		if d.Kind != inventory.Ether {
			nodes = append(nodes, d.NUMA)
		}
		files := r.files(d)
		for _, f := range files {
			if !slices.Contains(h.Files, f) {
				h.Files = append(h.Files, f)
			}
		}
		told = append(told, describe(d, files, r.pool.Sharing == pool.Shared))
	}
	h.Env = map[string]string{devices.Env(name): devices.Encode(told)}
	for _, unit := range units {
		r.used[unit] = true
	}
	if slices.Contains(l.guess.resources, name) {
		l.guess.resources, l.guess.nodes = nil, nil
	}
	l.guess.resources, l.guess.nodes = append(l.guess.resources, name), append(l.guess.nodes, nodes...)
	return h, nil
}

// files returns the device files of a device of the resource.
func (r *resource) files(d *inventory.Device) []string {
	files := slices.Clone(d.Files)
	if r.pool.RDMACM {
		files = append(files, rdmaCM)
	}
	return files
}

// Files returns the device files that a resource provides with each device, by device ID. It
// includes devices that are only unhealthy: a container that holds one may be restarted while
// its cable is unplugged.
func (l *Ledger) Files(name string) map[string][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	files := map[string][]string{}
	if r := l.find(name); r != nil {
		for i := range r.devices {
			if d := &r.devices[i]; len(d.Files) > 0 && !slices.Contains(d.Problems, goneProblem) {
				files[d.ID] = r.files(d)
			}
		}
	}
	return files
}

// describe returns a device as the container's file describes it.
func describe(d *inventory.Device, files []string, shared bool) devices.Device {
	t := devices.Device{Kind: string(d.Kind), Name: d.Name, PCI: d.PCI, NUMA: d.NUMA, Shared: shared}
	for _, f := range files {
		t.Files = append(t.Files, path.Join("/dev", f))
	}
	if d.RDMA != nil && len(d.RDMA.Ports) > 0 {
		t.LinkType = d.RDMA.Ports[0].LinkType
	}
	return t
}
