package inventory

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	classHCA   = "sys/class/infiniband"
	classVerbs = "sys/class/infiniband_verbs"
)

// hcas finds the RDMA devices. A function that has lost its driver has no RDMA device, so
// that a device of an earlier report is missing from this one.
func (s *scan) hcas() {
	files := s.verbsFiles()
	use := s.hostUse()
	var found []Device
	for _, name := range s.list(classHCA) {
		d := s.hca(name)
		if f := files[name]; f != "" {
			d.Files = []string{f}
		} else {
			d.Problems = append(d.Problems, "no verbs device: is the module ib_uverbs loaded?")
		}
		if len(d.PCI) > 0 {
			d.HostUse = use[d.PCI[0]]
		}
		found = append(found, d)
	}
	s.ids.name(found)
	for _, d := range found {
		s.add(d)
	}
}

// verbsFiles returns the verbs device files, relative to /dev, by RDMA device.
func (s *scan) verbsFiles() map[string]string {
	files := map[string]string{}
	for _, name := range s.list(classVerbs) {
		if !numbered(name, "uverbs") {
			continue // the directory also has the file abi_version
		}
		if hca := s.attribute(path.Join(classVerbs, name), "ibdev"); hca != "" {
			files[hca] = path.Join("infiniband", name)
		}
	}
	return files
}

// function returns the PCI address of an RDMA device; "" if it has none.
func (s *scan) function(name string) string {
	if address := s.base(path.Join(classHCA, name, "device")); isAddress(address) {
		return address
	}
	return ""
}

func (s *scan) hca(name string) Device {
	dir := path.Join(classHCA, name)
	d := Device{Kind: HCA, Name: name, NUMA: NoNUMA, RDMA: &RDMA{Function: Software, NodeGUID: s.attribute(dir, "node_guid")}}
	d.RDMA.Ports = s.ports(path.Join(dir, "ports"))
	if address := s.function(name); address != "" {
		d.PCI = []string{address}
		pci := path.Join(dir, "device")
		d.Vendor, d.Product = s.pciID(pci, "vendor"), s.pciID(pci, "device")
		d.Driver, d.NUMA = s.base(path.Join(pci, "driver")), s.numa(pci)
		d.RDMA.Netdevs = s.list(path.Join(pci, "net"))
		s.sriov(pci, address, d.RDMA)
	} else if parent := s.attribute(dir, "parent"); parent != "" {
		// A software device uses a network interface.
		d.RDMA.Netdevs = []string{parent}
		d.RDMA.PF = []string{name, parent}
		d.Driver = strings.TrimRight(name, "_0123456789")
	} else {
		d.RDMA.PF = []string{name}
	}
	d.Problems = portProblems(d.RDMA.Ports)
	return d
}

// sriov sets the fields about SR-IOV. pci is the directory of the function.
func (s *scan) sriov(pci, address string, r *RDMA) {
	physical := pci
	if owner := s.base(path.Join(pci, "physfn")); owner != "" {
		r.Function = Virtual
		r.VF = s.vfNumber(pci, address)
		physical, address = path.Join(pci, "physfn"), owner
	} else {
		r.Function = Physical
		r.VFs = s.number(pci, "sriov_numvfs", 0, 0, entriesMax)
		r.VFsMax = s.number(pci, "sriov_totalvfs", 0, 0, 1<<16)
	}
	r.PF = slices.Concat([]string{address}, s.list(path.Join(physical, "infiniband")), s.list(path.Join(physical, "net")))
}

// vfNumber returns the number of the virtual function with the given address, according to its
// physical function.
func (s *scan) vfNumber(pci, address string) int {
	for _, name := range s.list(path.Join(pci, "physfn")) {
		number, isVF := strings.CutPrefix(name, "virtfn")
		if !isVF || s.base(path.Join(pci, "physfn", name)) != address {
			continue
		}
		if n, err := strconv.Atoi(number); err == nil && n >= 0 {
			return n
		}
	}
	s.warn(pci, "the physical function does not list this virtual function")
	return 0
}

// isAddress reports whether a name is a PCI address: domain:bus:device.function.
func isAddress(name string) bool {
	var domain, bus, device, function uint
	if n, err := fmt.Sscanf(name, "%x:%02x:%02x.%1x", &domain, &bus, &device, &function); n != 4 || err != nil {
		return false
	}
	return name == fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}
