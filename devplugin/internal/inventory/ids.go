package inventory

import (
	"cmp"
	"slices"
)

// ids remembers the IDs of RDMA devices. A device has the PCI address of its function as its
// ID, because the address stays the same if the device is renamed. A function may get a second
// RDMA device while a container holds the first one: the first one keeps the address as its
// ID, and the IDs of later ones are the address followed by their names.
type ids struct {
	held map[string]string // by PCI address: the name of the device whose ID is the address alone
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
	// If several are seen for the first time, the one with the oldest verbs file gets the
	// address: files are numbered in the order in which devices are registered.
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
			m.held[address] = d.Name // the driver may have given the device another name
		}
		d.ID = address
		if m.held[address] != d.Name {
			d.ID += "-" + d.Name
		}
	}
}

// functionAndName returns the function and the name of a device.
func functionAndName(d *Device) string {
	if len(d.PCI) == 0 {
		return d.Name
	}
	return d.PCI[0] + " " + d.Name
}

// verbsFile returns a device's file. Devices without a file sort last.
func verbsFile(d *Device) string {
	if len(d.Files) == 0 {
		return "~"
	}
	return d.Files[0]
}
