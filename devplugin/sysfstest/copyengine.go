package sysfstest

import (
	"fmt"
	"path"
)

// Channel adds an I/OAT function and, if it is bound to vfio-pci, the files of its IOMMU
// group.
func (tree *Tree) Channel(f Function) {
	tree.t.Helper()
	tree.PCI(f)
	if f.Driver == "vfio-pci" {
		tree.Device("vfio/vfio")
		tree.Device(fmt.Sprintf("vfio/%d", f.Group))
	}
}

// Accelerator is a DSA device.
type Accelerator struct {
	Number   int
	Function Function
}

func (a *Accelerator) name() string { return fmt.Sprintf("dsa%d", a.Number) }

// DSA adds an enabled accelerator without work queues.
func (tree *Tree) DSA(a *Accelerator) {
	tree.t.Helper()
	tree.PCI(a.Function)
	dir := path.Join(a.Function.dir(), a.name())
	tree.SetAll(dir, fmt.Sprintf("numa_node = %d\nstate = enabled\npasid_enabled = 1\nmax_work_queues = 8\n", a.Function.NUMA))
	tree.Link(path.Join("sys/bus/dsa/devices", a.name()), dir)
}

// WorkQueue adds a work queue to an accelerator: kind is user or kernel, mode
// dedicated or shared.
func (tree *Tree) WorkQueue(a *Accelerator, number int, kind, mode string) {
	tree.t.Helper()
	name := fmt.Sprintf("wq%d.%d", a.Number, number)
	dir := path.Join(a.Function.dir(), a.name(), name)
	tree.SetAll(dir, `
		type = `+kind+`
		mode = `+mode+`
		name = outrigger
		state = enabled
		size = 16
		priority = 10
		group_id = 0
		threshold = 8
		max_transfer_size = 2147483648
		max_batch_size = 1024
	`)
	tree.mkdir("sys/bus/dsa/drivers/" + kind)
	tree.Link(path.Join(dir, "driver"), "sys/bus/dsa/drivers/"+kind)
	tree.Link(path.Join("sys/bus/dsa/devices", name), dir)
	if kind == "user" {
		tree.Device(path.Join("dsa", name))
	}
}

// QueueState changes the state of a work queue: enabled or disabled.
func (tree *Tree) QueueState(a *Accelerator, number int, state string) {
	tree.t.Helper()
	tree.SetAll(path.Join(a.Function.dir(), a.name(), fmt.Sprintf("wq%d.%d", a.Number, number)), "state = "+state)
}
