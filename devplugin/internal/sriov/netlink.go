package sriov

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// Netlink implements Links by rtnetlink, in the network namespace of this process. Writing
// needs CAP_NET_ADMIN there. An implementation with another library, such as sriovnet, would
// replace it.
type Netlink struct{}

// Read implements Links.
func (Netlink) Read(name string) (net.HardwareAddr, map[int]VF, error) {
	link, err := find(name)
	if err != nil {
		return nil, nil, err
	}
	attrs := link.Attrs()
	vfs := map[int]VF{}
	for i := range attrs.Vfs {
		v := &attrs.Vfs[i]
		vfs[v.ID] = VF{Number: v.ID, Hardware: known(v.Mac), Trust: trust(v.Trust)}
	}
	if attrs.PermHWAddr != nil {
		return attrs.PermHWAddr, vfs, nil
	}
	return attrs.HardwareAddr, vfs, nil
}

// Write implements Links.
func (Netlink) Write(name string, s Step) error {
	link, err := find(name)
	if err != nil {
		return err
	}
	if s.Kind == SetTrust {
		return netlink.LinkSetVfTrust(link, s.VF, s.Value == string(TrustEnabled))
	}
	address, err := net.ParseMAC(s.Value)
	if err != nil {
		return err
	}
	if s.Kind == MAC {
		return netlink.LinkSetVfHardwareAddr(link, s.VF, address)
	}
	h := &netlink.Handle{} // opens a socket for each request, as the package's functions do
	return errors.Join(
		h.LinkSetVfGUID(link, s.VF, address, nl.IFLA_VF_IB_NODE_GUID),
		h.LinkSetVfGUID(link, s.VF, address, nl.IFLA_VF_IB_PORT_GUID),
	)
}

func find(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, fmt.Errorf("%s: %w", name, ErrAbsent)
	}
	return link, err
}

// trust converts IFLA_VF_TRUST. A driver without it leaves the value at -1 (Linux,
// rtnl_fill_vfinfo).
func trust(v uint32) Trust {
	switch v {
	case 0:
		return TrustDisabled
	case 1:
		return TrustEnabled
	}
	return TrustUnknown
}

// known returns nil for the address 0, which means that the function has no address yet.
func known(address net.HardwareAddr) net.HardwareAddr {
	for _, b := range address {
		if b != 0 {
			return address
		}
	}
	return nil
}
