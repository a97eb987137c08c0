// Package sriov makes the virtual functions that the configuration asks for, and sets their
// number, addresses and trust. Host reads the present state of a function, PlanFor computes
// the necessary steps without changing anything, and Apply performs them. A Keeper does this
// when a physical function appears, and reports the condition of each one.
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
	// Interface is its network interface; "" if this process's network namespace has none. In
	// that case, neither addresses nor trust can be set.
	Interface  string
	InfiniBand bool
	// Identity is the value from which the addresses of its virtual functions are derived: the
	// permanent address of the card.
	Identity string
	// Max is the number of virtual functions that the card supports, and Count is the number
	// that it has.
	Max, Count int
	// Probing is whether the kernel binds a driver to new virtual functions.
	Probing bool
	VFs     []VF
}

// VF is a virtual function as it is now.
type VF struct {
	Number  int
	Address string // PCI
	Driver  string // name of the driver of the function; "" if it has none
	// Names are its network interfaces and RDMA devices, which other device plugins and DRA
	// drivers may use as its name.
	Names []string
	// Away is whether the function has a driver but its interface is not in the network
	// namespace of its physical function: a container has it.
	Away bool
	// Hardware is its MAC address or, on InfiniBand, its node GUID (8 bytes); nil if it is not
	// set or not known.
	Hardware net.HardwareAddr
	Trust    Trust
}

// Trust is whether a virtual function may change its own address and receive traffic for other
// addresses.
type Trust string

// The values of Trust.
const (
	TrustUnknown  Trust = ""
	TrustEnabled  Trust = "enabled"
	TrustDisabled Trust = "disabled"
)

// ErrAbsent is the error for a physical function that the node does not have now.
var ErrAbsent = errors.New("no such physical function")

// Kind is the kind of a step.
type Kind string

// The kinds of steps, in the order in which they are performed.
const (
	// Count makes Number virtual functions, after removing all existing ones, as the kernel
	// requires.
	Count Kind = "count"
	// MAC and GUID set the address of a virtual function. GUID sets both GUIDs of an
	// InfiniBand function.
	MAC  Kind = "mac"
	GUID Kind = "guid"
	// SetTrust sets its trust.
	SetTrust Kind = "trust"
	// Reset unbinds its driver and binds it again, so that the driver uses the new address.
	Reset Kind = "reset"
)

// Step is one change of a physical function.
type Step struct {
	Kind  Kind
	VF    int // number of the virtual function, for all kinds but Count
	Value string
	// Number is the number of functions for Count. Quiet leaves the new functions without a
	// driver until they have their addresses.
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

// Use is which devices containers use.
type Use struct {
	// Unknown is the reason why this is not known; nil if it is known. A function that is not
	// known to be free counts as used.
	Unknown error
	// Devices are the names that device plugins and DRA drivers use. The names of Outrigger
	// and of other plugins contain the PCI address, or are names of the kernel.
	Devices []string
}

// holds returns why a virtual function must not be changed; "" if it is free.
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

// plain returns a name in a form that does not depend on the driver's way of writing it: names
// of DRA devices are DNS labels, in which 0000:3b:00.2 is 0000-3b-00-2.
func plain(name string) string {
	return strings.NewReplacer(":", "-", ".", "-", "_", "-").Replace(strings.ToLower(name))
}
