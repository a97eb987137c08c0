package grant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// netInterface is an interface of a pod.
type netInterface struct {
	name       string
	index, mtu int
	flags      uint16
	kind       uint16 // type of the hardware (Linux, if_arp.h)
}

// lookAt asks for an interface in the network namespace of a socket (netdevice(7)).
func lookAt(fd int, name string) (*netInterface, error) {
	i := &netInterface{name: name}
	for _, ask := range []struct {
		request uint
		take    func(*unix.Ifreq)
	}{
		{unix.SIOCGIFINDEX, func(r *unix.Ifreq) { i.index = int(r.Uint32()) }},
		{unix.SIOCGIFFLAGS, func(r *unix.Ifreq) { i.flags = r.Uint16() }},
		{unix.SIOCGIFMTU, func(r *unix.Ifreq) { i.mtu = int(r.Uint32()) }},
		{unix.SIOCGIFHWADDR, func(r *unix.Ifreq) { i.kind = r.Uint16() }}, // the family of the address
	} {
		r, err := unix.NewIfreq(name)
		if err == nil {
			err = unix.IoctlIfreq(fd, ask.request, r)
		}
		if err != nil {
			return nil, err
		}
		ask.take(r)
	}
	return i, nil
}

// check returns an error if frames cannot be sent over the interface.
func (i *netInterface) check() error {
	switch {
	case i.flags&unix.IFF_LOOPBACK != 0:
		return fmt.Errorf("%s is the pod's loopback interface, which has no peers; set interface of the pool to one that joins the pods", i.name)
	case i.kind != unix.ARPHRD_ETHER:
		return fmt.Errorf("%s is of the hardware type %d and not Ethernet; set interface of the pool to an Ethernet interface of the pods", i.name, i.kind)
	case i.flags&unix.IFF_UP == 0:
		return fmt.Errorf("%s is down; the pod's network plugin has to set it up", i.name)
	}
	return nil
}

// chooseInterface returns the interface for a socket: the named one, or else the one with the
// default route, or else the only Ethernet interface that is up. The calling thread is in the
// socket's network namespace.
func chooseInterface(fd int, name string) (*netInterface, error) {
	if name == "" {
		var err error
		if name, err = defaultInterface(); err != nil {
			return nil, fmt.Errorf("the pod's default route: %w", err)
		}
	}
	if name == "" {
		return onlyInterface(fd)
	}
	i, err := lookAt(fd, name)
	if errors.Is(err, unix.ENODEV) {
		names, listErr := interfaces()
		return nil, errors.Join(fmt.Errorf("the pod has no interface %s, but %s; set interface of the pool, or give the pod the network", name, strings.Join(names, ", ")), listErr)
	}
	if err != nil {
		return nil, fmt.Errorf("the interface %s of the pod: %w", name, err)
	}
	return i, i.check()
}

// onlyInterface returns the only Ethernet interface that is up.
func onlyInterface(fd int) (*netInterface, error) {
	names, err := interfaces()
	if err != nil {
		return nil, fmt.Errorf("the interfaces of the pod: %w", err)
	}
	var found []*netInterface
	for _, name := range names {
		i, err := lookAt(fd, name)
		if errors.Is(err, unix.ENODEV) {
			continue // it has gone
		}
		if err != nil {
			return nil, fmt.Errorf("the interface %s of the pod: %w", name, err)
		}
		if i.check() == nil {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("none of the pod's interfaces (%s) is an Ethernet interface that is up; the pod needs a network", strings.Join(names, ", "))
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("the pod has no default route, and %s and %s are both up; set interface of the pool", found[0].name, found[1].name)
}

// addressOf returns the Ethernet address of the interface to which a socket is bound.
func addressOf(fd int) (net.HardwareAddr, error) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return nil, err
	}
	l, ok := name.(*unix.SockaddrLinklayer)
	if !ok || l.Hatype != unix.ARPHRD_ETHER || l.Halen != 6 {
		return nil, errors.New("it is not an Ethernet address")
	}
	return net.HardwareAddr(l.Addr[:6]), nil
}

// networkOrder returns a number whose bytes in memory are in the order of the network.
func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// Offsets of what the kernel knows of a frame (Linux, filter.h), which a filter reads as if it
// were in the frame. They do not depend on the type of the socket.
const (
	offsetProtocol   = 0xfffff000     // SKF_AD_OFF + SKF_AD_PROTOCOL
	offsetPacketType = 0xfffff000 + 4 // SKF_AD_OFF + SKF_AD_PKTTYPE
)

// acceptedMax is the number of bytes of a frame that pass the filter: all of them.
const acceptedMax = 1 << 18

// lockFilter lets only frames of grant.EtherType to this interface's own address pass, and locks
// that: the holder of the socket can bind it to another protocol and another interface, and
// cannot remove the filter (socket(7), SO_LOCK_FILTER).
func lockFilter(fd int) error {
	const load, equal, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: offsetProtocol},
		{Code: equal, K: grant.EtherType, Jf: 3},
		{Code: load, K: offsetPacketType},
		{Code: equal, K: unix.PACKET_HOST, Jf: 1},
		{Code: end, K: acceptedMax},
		{Code: end, K: 0},
	}
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1)
}
