package inventory

import (
	"cmp"
	"slices"
)

// ids has the IDs of RDMA devices for the kubelet. The ID of a function's device is the PCI address,
// which a renaming does not change. A function may get a second RDMA device while a container holds
// the first: the first keeps the address as its ID, and the ID of a later one is address and name.
type ids struct {
	held map[string]string // by PCI address: the name of the device that is called by it alone
}

// name returns each device of a scan its ID.
func (m *ids) name(found []Device) {
	if m.held == nil {
		m.held = map[string]string{}
	}
	there := map[string]bool{}
	for i := range found {
		there[functionAndName(&found[i])] = true
	}
	// Of several that are seen for the first time, the one whose verbs file is the
	// oldest: files are numbered as devices are registered.
	order := make([]*Device, len(found))
	for i := range found {
		order[i] = &found[i]
	}
	slices.SortStableFunc(order, func(a, b *Device) int {
		return cmp.Or(naturally(verbsFile(a), verbsFile(b)), naturally(a.Name, b.Name))
	})
	for _, d := range order {
		if len(d.PCI) == 0 {
			d.ID = d.Name
			continue
		}
		address := d.PCI[0]
		if holder := m.held[address]; holder == "" || !there[address+" "+holder] {
			m.held[address] = d.Name // its driver may have come back with another name
		}
		d.ID = address
		if m.held[address] != d.Name {
			d.ID += "-" + d.Name
		}
	}
}

// functionAndName names a device by its function and name.
func functionAndName(d *Device) string {
	if len(d.PCI) == 0 {
		return d.Name
	}
	return d.PCI[0] + " " + d.Name
}

// verbsFile returns a device's file; one without sorts last.
func verbsFile(d *Device) string {
	if len(d.Files) == 0 {
		return "~"
	}
	return d.Files[0]
}
