// Package sriov makes the virtual functions that the configuration asks for:
// their number, their addresses and their trust. What a function is like is
// read (Host), what would have to be done is worked out without touching
// anything (Plan), and then done (Apply); a Keeper does that when a physical
// function appears and says in which condition each one is.
//
// The kernel side is Linux's PCI SR-IOV (Documentation/PCI/pci-iov-howto.rst,
// Documentation/ABI/testing/sysfs-bus-pci) and rtnetlink's IFLA_VF_*.
package sriov

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Function is a physical function as it is now.
type Function struct {
	Address string // PCI
	// Interface is its network interface, "" when this process's network
	// namespace has none: then neither addresses nor trust can be set.
	Interface  string
	InfiniBand bool
	// Identity is what its virtual functions' addresses are made from: the
	// address that the card was made with.
	Identity string
	// Max is how many virtual functions the card offers, Count how many it has.
	Max, Count int
	// Probing says that the kernel binds a driver to new virtual functions.
	Probing bool
	VFs     []VF
}

// VF is a virtual function as it is now.
type VF struct {
	Number  int
	Address string // PCI
	Driver  string // "" for none
	// Names are its network interfaces and RDMA devices, which other device
	// plugins and DRA drivers may call it by.
	Names []string
	// Away says that a driver has it and that its interface is not in the network
	// namespace of its physical function's: a container has it.
	Away bool
	// Hardware is its MAC address or, on InfiniBand, its node GUID as 8 bytes;
	// nil when it is not set or cannot be known.
	Hardware net.HardwareAddr
	Trust    Trust
}

// Trust is whether a virtual function may change its own address and see
// traffic that is not addressed to it.
type Trust string

// The values of Trust.
const (
	TrustUnknown  Trust = ""
	TrustEnabled  Trust = "enabled"
	TrustDisabled Trust = "disabled"
)

// ErrAbsent is that a node has no such physical function now.
var ErrAbsent = errors.New("no such physical function")

// Kind is what a step does.
type Kind string

// The kinds of step, in the order in which they are done.
const (
	// Count makes virtual functions: Value of them, after taking away all that
	// there are, as the kernel demands.
	Count Kind = "count"
	// MAC and GUID set the address of a virtual function; both GUIDs of an
	// InfiniBand one.
	MAC  Kind = "mac"
	GUID Kind = "guid"
	// SetTrust sets its trust.
	SetTrust Kind = "trust"
	// Reset takes its driver away and binds it again, so that the driver sees
	// the new address.
	Reset Kind = "reset"
)

// Step is one change of a physical function.
type Step struct {
	Kind  Kind
	VF    int // of all kinds but Count
	Value string
	// Number is Count's value. Quiet leaves the new functions without a driver
	// until they have their addresses.
	Number int
	Quiet  bool
}

func (s Step) String() string {
	switch s.Kind {
	case Count:
		return fmt.Sprintf("make %d virtual functions", s.Number)
	case MAC:
		return fmt.Sprintf("vf %d: MAC address %s", s.VF, s.Value)
	case GUID:
		return fmt.Sprintf("vf %d: node and port GUID %s", s.VF, s.Value)
	case SetTrust:
		return fmt.Sprintf("vf %d: trust %s", s.VF, s.Value)
	}
	return fmt.Sprintf("vf %d: bind its driver anew", s.VF)
}

// Use is which devices are in containers' hands.
type Use struct {
	// Unknown is why that is not known, nil when it is. What is not known to be
	// free counts as used.
	Unknown error
	// Devices are the names that device plugins and DRA drivers gave them. Ours,
	// like others', have the PCI address in them, or are a name of the kernel's.
	Devices []string
}

// holds returns why a virtual function must not be touched, "" when it is free.
func (u *Use) holds(vf *VF) string {
	address := plain(vf.Address)
	for _, id := range u.Devices {
		if strings.Contains(plain(id), address) || slices.Contains(vf.Names, id) {
			return "is allocated to a container"
		}
	}
	switch {
	case vf.Away:
		return "has its network interface in another network namespace, that of a container"
	case vf.Driver == "vfio-pci":
		return "is bound to vfio-pci, for a virtual machine perhaps"
	case u.Unknown != nil:
		return fmt.Sprintf("may be allocated to a container: %v", u.Unknown)
	}
	return ""
}

// plain returns a name without what drivers write differently: names of DRA devices
// are DNS labels, so that 0000:3b:00.2 is 0000-3b-00-2 there.
func plain(name string) string {
	return strings.NewReplacer(":", "-", ".", "-", "_", "-").Replace(strings.ToLower(name))
}
