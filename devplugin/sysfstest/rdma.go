package sysfstest

import (
	"fmt"
	"path"
)

// Adapter is an RDMA device.
type Adapter struct {
	Name     string
	Function Function // PCI function of the device; zero for a software device
	Netdev   string
	LinkType string // InfiniBand or Ethernet
	Verbs    int    // number of the device's uverbs file
	GID      string
}

func (a *Adapter) dir() string {
	if a.Function.Address == "" {
		return path.Join("sys/devices/virtual/infiniband", a.Name)
	}
	return path.Join(a.Function.dir(), "infiniband", a.Name)
}

// HCA adds an RDMA device with one active port, its function and its files.
func (tree *Tree) HCA(a *Adapter) {
	tree.t.Helper()
	if a.Function.Address != "" {
		tree.PCI(a.Function)
	}
	tree.Plug(a)
}

// Plug adds only the RDMA device, as when its driver is loaded again after Unplug.
func (tree *Tree) Plug(a *Adapter) {
	tree.t.Helper()
	if a.Function.Address != "" {
		tree.Link(path.Join(a.dir(), "device"), a.Function.dir())
		if a.Netdev != "" {
			tree.Set(path.Join(a.Function.dir(), "net", a.Netdev, "operstate"), "up\n")
		}
	} else {
		tree.Set(path.Join(a.dir(), "parent"), a.Netdev+"\n")
	}
	tree.SetAll(a.dir(), "node_guid = "+fmt.Sprintf("9803:9b03:00c2:%04x", a.Verbs))
	tree.SetAll(path.Join(a.dir(), "ports/1"), `
		link_layer = `+a.LinkType+`
		rate = 100 Gb/sec (4X EDR)
		gids/0 = `+a.GID+`
		gids/1 = 0000:0000:0000:0000:0000:0000:0000:0000
		gids/2 = 0000:0000:0000:0000:0000:ffff:0a00:0001
		gid_attrs/types/0 = IB/RoCE v1
		gid_attrs/types/2 = RoCE v2
		gid_attrs/ndevs/2 = `+a.Netdev+`
	`)
	tree.Port(a, "4: ACTIVE", "5: LinkUp")
	tree.Link(path.Join("sys/class/infiniband", a.Name), a.dir())
	verbs := fmt.Sprintf("uverbs%d", a.Verbs)
	tree.Set(path.Join(path.Dir(path.Dir(a.dir())), "infiniband_verbs", verbs, "ibdev"), a.Name+"\n")
	tree.Link(path.Join("sys/class/infiniband_verbs", verbs), path.Join(path.Dir(path.Dir(a.dir())), "infiniband_verbs", verbs))
	tree.Set("sys/class/infiniband_verbs/abi_version", "6\n")
	tree.Device(path.Join("infiniband", verbs))
	tree.Device("infiniband/rdma_cm")
}

// Port changes the state of an adapter's port.
func (tree *Tree) Port(a *Adapter, state, physical string) {
	tree.t.Helper()
	tree.SetAll(path.Join(a.dir(), "ports/1"), "state = "+state+"\nphys_state = "+physical)
}

// Unplug removes an adapter's RDMA device, as when its driver is unloaded.
func (tree *Tree) Unplug(a *Adapter) {
	tree.t.Helper()
	verbs := fmt.Sprintf("uverbs%d", a.Verbs)
	for _, name := range []string{
		path.Join("sys/class/infiniband", a.Name), path.Join("sys/class/infiniband_verbs", verbs),
		path.Join(a.dir()), path.Join(path.Dir(path.Dir(a.dir())), "infiniband_verbs"), path.Join("dev/infiniband", verbs),
	} {
		tree.Remove(name)
	}
}

// SRIOV makes virtual the virtual functions of physical, which can have at most most of them.
// All functions must have been added before.
func (tree *Tree) SRIOV(physical Function, most int, virtual ...Function) {
	tree.t.Helper()
	tree.SetAll(physical.dir(), fmt.Sprintf("sriov_totalvfs = %d\nsriov_numvfs = %d", most, len(virtual)))
	for i, f := range virtual {
		tree.Link(path.Join(physical.dir(), fmt.Sprintf("virtfn%d", i)), f.dir())
		tree.Link(path.Join(f.dir(), "physfn"), physical.dir())
	}
}
