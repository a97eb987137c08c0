package inventory

import (
	"fmt"
	"path"
	"slices"
	"strconv"
)

const (
	pciDevices  = "sys/bus/pci/devices"
	iommuGroups = "sys/kernel/iommu_groups"
	intel       = "8086"
	vfioDriver  = "vfio-pci"
)

// products is a range of PCI device IDs.
type products struct {
	first, count uint64
	chip         string
}

// ioatProducts are the PCI device IDs of I/OAT channels, from Sandy Bridge to Ice Lake.
var ioatProducts = []products{
	{0x3c20, 8, "Sandy Bridge"},
	{0x3c2e, 2, "Sandy Bridge"},
	{0x0e20, 8, "Ivy Bridge"},
	{0x0e2e, 2, "Ivy Bridge"},
	{0x2f20, 8, "Haswell"},
	{0x2f2e, 2, "Haswell"},
	{0x0c50, 4, "Atom S1200"},
	{0x6f50, 4, "Broadwell-DE"},
	{0x6f20, 8, "Broadwell"},
	{0x6f2e, 2, "Broadwell"},
	{0x2021, 1, "Skylake, Cascade Lake"},
	{0x0b00, 1, "Ice Lake"},
}

func isIOAT(product string) bool {
	id, err := strconv.ParseUint(product, 16, 16)
	return err == nil && slices.ContainsFunc(ioatProducts, func(p products) bool {
		return id >= p.first && id < p.first+p.count
	})
}

// ioats finds the I/OAT functions. VFIO opens whole IOMMU groups, so the functions of one
// group are one device. If they were two devices, two pods would get the same file and only
// one of them could open it (Linux, VFIO documentation, "Groups, Devices, and IOMMUs").
func (s *scan) ioats() {
	seen := map[string]bool{}
	for _, address := range s.list(pciDevices) {
		dir := path.Join(pciDevices, address)
		if s.pciID(dir, "vendor") != intel || !isIOAT(s.pciID(dir, "device")) {
			continue
		}
		group := s.base(path.Join(dir, "iommu_group"))
		if !numbered(group, "") {
			s.add(s.ungrouped(address))
		} else if !seen[group] {
			seen[group] = true
			s.add(s.ioatGroup(address, group))
		}
	}
}

func (s *scan) ioatFunction(address string) Device {
	dir := path.Join(pciDevices, address)
	return Device{
		ID: address, Kind: IOAT, Name: address, PCI: []string{address}, NUMA: s.numa(dir),
		Vendor: intel, Product: s.pciID(dir, "device"), Driver: s.base(path.Join(dir, "driver")),
	}
}

func (s *scan) ungrouped(address string) Device {
	d := s.ioatFunction(address)
	d.Problems = []string{"no IOMMU group: boot with intel_iommu=on"}
	return d
}

// ioatGroup returns the device of a group whose first I/OAT function has the given address.
// The group can be opened only if every function in it is bound to VFIO or has no driver.
func (s *scan) ioatGroup(address, group string) Device {
	d := s.ioatFunction(address)
	d.Files = []string{"vfio/vfio", path.Join("vfio", group)}
	if d.Driver != vfioDriver {
		d.Problems = []string{fmt.Sprintf("bound to %s: bind it to %s", orNothing(d.Driver), vfioDriver)}
	}
	members := s.list(path.Join(iommuGroups, group, "devices"))
	if len(members) > groupMax {
		s.warn(path.Join(iommuGroups, group), fmt.Sprintf("more than %d functions; the rest is ignored", groupMax))
		members = members[:groupMax]
	}
	for _, member := range members {
		if member == address || !isAddress(member) {
			continue
		}
		dir := path.Join(pciDevices, member)
		driver := s.base(path.Join(dir, "driver"))
		if driver != "" && driver != vfioDriver && driver != "pcieport" {
			d.Problems = append(d.Problems, fmt.Sprintf("%s is in the same IOMMU group and bound to %s", member, driver))
		}
		if s.pciID(dir, "vendor") == intel && isIOAT(s.pciID(dir, "device")) {
			d.PCI = append(d.PCI, member)
		}
	}
	return d
}

func orNothing(driver string) string {
	if driver == "" {
		return "no driver"
	}
	return driver
}
