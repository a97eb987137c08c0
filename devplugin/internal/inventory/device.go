// Package inventory finds the devices of a node that Outrigger can offer to pods: RDMA host
// channel adapters and their virtual functions, I/OAT functions that are bound to vfio-pci,
// and user work queues of DSA. It reads sysfs below a root directory and writes nothing, so
// that the same code works on a node, in a container with the host's root mounted in a
// directory, and in a test.
package inventory

import "slices"

// Kind is the kind of a device.
type Kind string

// The kinds of devices.
const (
	HCA  Kind = "hca"  // an RDMA host channel adapter: a physical or virtual function, or a software one
	IOAT Kind = "ioat" // Intel I/OAT (CBDMA) channels behind one IOMMU group
	DSA  Kind = "dsa"  // one user work queue of an Intel Data Streaming Accelerator
	// Ether is packet sockets in a pod's network namespace. No scan finds it: the
	// configuration makes one device for each of its pools (package pool).
	Ether Kind = "ether"
)

// Kinds lists the kinds that a scan finds, in the order of the report.
var Kinds = []Kind{HCA, IOAT, DSA}

// NoNUMA is the NUMA node of a device for which the firmware does not provide one.
const NoNUMA = -1

// Device is a device that can be allocated, with all attributes that a pool can select on.
type Device struct {
	// ID is the kubelet's name of the device. It stays the same after a reboot and after a
	// change of driver if the hardware allows it: a PCI address, and not a name that depends
	// on the order of probing.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Name is the kernel's name: mlx5_0, wq1.0; a PCI address for I/OAT.
	Name string `json:"name"`
	// PCI are the addresses of the functions of the device: one, or all I/OAT functions of an
	// IOMMU group; none for a software device.
	PCI []string `json:"pci,omitempty"`
	// Vendor and Product are the PCI IDs, four hexadecimal digits.
	Vendor  string `json:"vendor,omitempty"`
	Product string `json:"product,omitempty"`
	Driver  string `json:"driver,omitempty"`
	// NUMA is the NUMA node of the device, or NoNUMA.
	NUMA int `json:"numa"`
	// Files are the device files that a user needs, relative to /dev.
	Files []string `json:"files,omitempty"`
	// HostUse describes how the node itself uses the device: for its default route, or for
	// mounted storage.
	HostUse []string `json:"hostUse,omitempty"`
	// Problems describe why the device cannot be used now. A device without problems is
	// healthy.
	Problems []string `json:"problems,omitempty"`

	RDMA  *RDMA  `json:"rdma,omitempty"`  // set for an HCA
	Queue *Queue `json:"queue,omitempty"` // set for a DSA work queue
}

// Healthy reports whether the device can be allocated to a pod now.
func (d *Device) Healthy() bool { return len(d.Problems) == 0 }

// Function is the role of an HCA in SR-IOV.
type Function string

// The functions of an HCA.
const (
	Physical Function = "pf"       // a physical function, with or without virtual ones
	Virtual  Function = "vf"       // a virtual function
	Software Function = "software" // rxe, siw: there is no PCI function
)

// RDMA has the attributes of an HCA.
type RDMA struct {
	Function Function `json:"function"`
	// PF has the names of the physical function of a virtual one, in all forms in which a user
	// may know it: PCI address, RDMA device, network interfaces. For a physical function they
	// are its own names.
	PF []string `json:"pf,omitempty"`
	// VF is the number of a virtual function under its physical one.
	VF int `json:"vf,omitempty"`
	// VFs is the number of virtual functions that a physical function has, and VFsMax is the
	// maximum.
	VFs    int `json:"vfs,omitempty"`
	VFsMax int `json:"vfsMax,omitempty"`
	// Netdevs are the network interfaces of the function that are visible in this process's
	// network namespace.
	Netdevs  []string `json:"netdevs,omitempty"`
	NodeGUID string   `json:"nodeGUID,omitempty"`
	Ports    []Port   `json:"ports"`
}

// Link types of ports, as the kernel writes them, in lower case.
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
	Physical string `json:"physical,omitempty"` // physical state of the port: linkup, polling, disabled, ...
	Rate     string `json:"rate,omitempty"`     // rate in the kernel's form: 100 Gb/sec (4X EDR)
	GIDs     []GID  `json:"gids,omitempty"`
}

// GID is one entry of a port's GID table.
type GID struct {
	Index  int    `json:"index"`
	Value  string `json:"value"`
	Type   string `json:"type,omitempty"` // type of the GID: IB/RoCE v1 or RoCE v2
	Netdev string `json:"netdev,omitempty"`
}

// Queue has the attributes of a DSA work queue.
type Queue struct {
	Device    string `json:"device"` // name of the accelerator, such as dsa1
	Group     int    `json:"group"`
	Mode      string `json:"mode"` // mode of the queue: dedicated or shared
	Label     string `json:"label,omitempty"`
	Entries   int    `json:"entries"`
	Priority  int    `json:"priority"`
	Threshold int    `json:"threshold,omitempty"`
	CopyMax   uint64 `json:"copyMax,omitempty"` // maximum number of bytes that one descriptor can copy
	BatchMax  uint64 `json:"batchMax,omitempty"`
}

// HasLinkType reports whether one of the ports has the link type.
func (r *RDMA) HasLinkType(linkType string) bool {
	return slices.ContainsFunc(r.Ports, func(p Port) bool { return p.LinkType == linkType })
}
