package inventory

import (
	"path"
	"strings"
)

const dsaQueues = "sys/bus/dsa/devices"

// queues finds the user work queues. The directory also has the accelerators, their engines,
// and the queues of IAA accelerators, which compress and do not copy.
func (s *scan) queues() {
	for _, name := range s.list(dsaQueues) {
		accelerators, number, found := strings.Cut(name, ".")
		if !found || !numbered(accelerators, "wq") || !numbered(number, "") {
			continue
		}
		target := s.link(path.Join(dsaQueues, name))
		accelerator := path.Base(path.Dir(target))
		if !numbered(accelerator, "dsa") {
			continue
		}
		dir := path.Join(dsaQueues, name)
		if s.attribute(dir, "type") != "user" {
			continue
		}
		s.add(s.queue(dir, name, accelerator, path.Base(path.Dir(path.Dir(target)))))
	}
}

func (s *scan) queue(dir, name, accelerator, address string) Device {
	parent := path.Join(dsaQueues, accelerator)
	d := Device{
		ID: name, Kind: DSA, Name: name, Driver: s.base(path.Join(dir, "driver")), NUMA: s.numa(parent),
		Files: []string{path.Join("dsa", name)},
		Queue: &Queue{
			Device: accelerator, Group: s.number(dir, "group_id", -1, -1, 1<<16),
			Mode: s.attribute(dir, "mode"), Label: s.attribute(dir, "name"),
			Entries: s.number(dir, "size", 0, 0, 1<<16), Priority: s.number(dir, "priority", 0, 0, 255),
			Threshold: s.number(dir, "threshold", 0, 0, 1<<16),
			CopyMax:   s.bytes(dir, "max_transfer_size"), BatchMax: s.bytes(dir, "max_batch_size"),
		},
	}
	if isAddress(address) {
		// The number of an accelerator depends on the order of probing.
		d.ID = address + "-wq" + strings.TrimLeft(path.Ext(name), ".")
		d.PCI = []string{address}
		pci := path.Join(pciDevices, address)
		d.Vendor, d.Product = s.pciID(pci, "vendor"), s.pciID(pci, "device")
	}
	d.Problems = s.queueProblems(dir, parent)
	return d
}

// queueProblems returns the problems of a queue. Without PASID, a queue cannot use the virtual
// addresses of a process, which is the only way in which a pod may use it.
func (s *scan) queueProblems(dir, parent string) []string {
	var problems []string
	if state := s.attribute(dir, "state"); state != "enabled" {
		problems = append(problems, "the work queue is "+orUnknown(state))
	}
	if state := s.attribute(parent, "state"); state != "" && state != "enabled" {
		problems = append(problems, "the accelerator is "+state)
	}
	if s.attribute(parent, "pasid_enabled") == "0" {
		problems = append(problems, "no PASID: boot with intel_iommu=on,sm_on")
	}
	return problems
}
