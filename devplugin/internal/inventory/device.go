// Package inventory finds the devices of a node that Outrigger can hand to a
// pod: RDMA host channel adapters and their virtual functions, I/OAT functions
// that are bound to vfio-pci, and user work queues of DSA. It reads sysfs below
// a root and writes nothing, so that the same code serves a node, a container
// with the host mounted somewhere, and a test.
package inventory

import "slices"

// Kind is the kind of a device.
type Kind string

// The kinds of device.
const (
	HCA  Kind = "hca"  // an RDMA host channel adapter: a physical or virtual function, or a software one
	IOAT Kind = "ioat" // Intel I/OAT (CBDMA) channels behind one IOMMU group
	DSA  Kind = "dsa"  // one user work queue of an Intel Data Streaming Accelerator
)

// Kinds lists every kind in the order of a report.
var Kinds = []Kind{HCA, IOAT, DSA}

// NoNUMA is the NUMA node of a device whose node the firmware does not report.
const NoNUMA = -1

// Device is one device that can be allocated, with all attributes that a pool can select by.
type Device struct {
	// ID is the name of the device for the kubelet. Where the hardware permits, it stays the same
	// after a reboot and a change of driver: a PCI address, and not a name that depends on the order
	// of probing.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Name is the kernel's name: mlx5_0, wq1.0; a PCI address for I/OAT.
	Name string `json:"name"`
	// PCI are the addresses of the functions behind the device: one, or all the
	// I/OAT functions of an IOMMU group; none for a software device.
	PCI []string `json:"pci,omitempty"`
	// Vendor and Product are the PCI IDs, four hexadecimal digits.
	Vendor  string `json:"vendor,omitempty"`
	Product string `json:"product,omitempty"`
	Driver  string `json:"driver,omitempty"`
	// NUMA is the node of the device, or NoNUMA.
	NUMA int `json:"numa"`
	// Files are the device files that a user needs, relative to /dev.
	Files []string `json:"files,omitempty"`
	// HostUse is the node's own use of the device: its default route, storage that is mounted.
	HostUse []string `json:"hostUse,omitempty"`
	// Problems are the reasons why the device cannot be used now. A device without problems is
	// healthy.
	Problems []string `json:"problems,omitempty"`

	RDMA  *RDMA  `json:"rdma,omitempty"`  // of an HCA
	Queue *Queue `json:"queue,omitempty"` // of a DSA work queue
}

// Healthy reports whether the device can be given to a pod now.
func (d *Device) Healthy() bool { return len(d.Problems) == 0 }

// Function is the kind of an HCA in terms of SR-IOV.
type Function string

// The functions of an HCA.
const (
	Physical Function = "pf"       // a physical function, with or without virtual ones
	Virtual  Function = "vf"       // a virtual function
	Software Function = "software" // rxe, siw: no PCI function at all
)

// RDMA has the attributes of an HCA.
type RDMA struct {
	Function Function `json:"function"`
	// PF names the physical function of a virtual one, in all the ways that a
	// person may know it: PCI address, RDMA device, network interfaces. Of a
	// physical function they are its own names.
	PF []string `json:"pf,omitempty"`
	// VF is the number of a virtual function under its physical one.
	VF int `json:"vf,omitempty"`
	// VFs and VFsMax count the virtual functions that a physical one has and
	// could have.
	VFs    int `json:"vfs,omitempty"`
	VFsMax int `json:"vfsMax,omitempty"`
	// Netdevs are the network interfaces of the function that this process's
	// network namespace shows.
	Netdevs  []string `json:"netdevs,omitempty"`
	NodeGUID string   `json:"nodeGUID,omitempty"`
	Ports    []Port   `json:"ports"`
}

// LinkTypes of ports, as the kernel spells them in lower case.
const (
	InfiniBand = "infiniband"
	Ethernet   = "ethernet"
)

// Port is one port of an HCA.
type Port struct {
	Number   int    `json:"number"`
	LinkType string `json:"linkType"`
	// State is the logical state (IBTA volume 1, 14.2.5.6): down, init, armed,
	// active, active_defer.
	State    string `json:"state"`
	Physical string `json:"physical,omitempty"` // linkup, polling, disabled, ...
	Rate     string `json:"rate,omitempty"`     // as the kernel writes it: 100 Gb/sec (4X EDR)
	GIDs     []GID  `json:"gids,omitempty"`
}

// GID is one entry of a port's GID table.
type GID struct {
	Index  int    `json:"index"`
	Value  string `json:"value"`
	Type   string `json:"type,omitempty"` // IB/RoCE v1, RoCE v2
	Netdev string `json:"netdev,omitempty"`
}

// Queue has the attributes of a DSA work queue.
type Queue struct {
	Device    string `json:"device"` // dsa1
	Group     int    `json:"group"`
	Mode      string `json:"mode"` // dedicated or shared
	Label     string `json:"label,omitempty"`
	Entries   int    `json:"entries"`
	Priority  int    `json:"priority"`
	Threshold int    `json:"threshold,omitempty"`
	CopyMax   uint64 `json:"copyMax,omitempty"` // bytes in one descriptor
	BatchMax  uint64 `json:"batchMax,omitempty"`
}

// HasLinkType reports whether one of the ports is of the link type.
func (r *RDMA) HasLinkType(linkType string) bool {
	return slices.ContainsFunc(r.Ports, func(p Port) bool { return p.LinkType == linkType })
}
