package ether

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// udp is the carrier over a UDP socket. The kernel cuts a batch into packets, and joins
// packets that arrive one behind the other (UDP_SEGMENT and UDP_GRO, udp(7)), so that a
// system call moves up to 64 KiB.
type udp struct {
	fd       int
	v6       bool
	stats    *Stats
	drops    uint32 // that the kernel had counted when it was asked last
	out      [sendBatches]header
	outParts [sendBatches]parts
	in       [receiveBatches]header
	inParts  [receiveBatches]parts
	input    []byte
	arrivals [receiveBatches]arrival
}

// Batches of one system call. Input buffers take receiveBatches times 64 KiB.
const (
	sendBatches    = 32
	receiveBatches = 8
	inputBytes     = 64 << 10
)

// socketBuffer is the size of the socket's buffers, which the kernel limits to
// net.core.rmem_max and wmem_max.
const socketBuffer = memory.EtherSocket

// Of SO_MEMINFO (linux/sock_diag.h): the number of values, and the index of the packets that were
// dropped.
const (
	memoryInfo  = 9
	memoryDrops = 8
)

// leastPacket is less than what Linux counts for a packet without bytes: its struct sk_buff and
// struct skb_shared_info, more than 500 bytes together.
const leastPacket = 512

// address is a socket address as the kernel takes it.
type address struct {
	raw [unix.SizeofSockaddrInet6]byte
	n   uint32
}

// openUDP makes the socket of a sidecar that listens for its peers at at. If its port is
// taken, another one is used: the port is a part of the offer.
func openUDP(at netip.AddrPort, stats *Stats) (*udp, uint16, error) {
	u := &udp{fd: -1, v6: !at.Addr().Is4(), stats: stats, input: make([]byte, receiveBatches*inputBytes)}
	family := unix.AF_INET
	if u.v6 {
		family = unix.AF_INET6
	}
	var err error
	if u.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, 0, fmt.Errorf("ether: UDP socket: %w", err)
	}
	port, err := u.bind(at)
	if err == nil {
		err = u.tune()
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("ether: UDP socket at %v: %w", at, err), unix.Close(u.fd))
	}
	u.prepare()
	return u, port, nil
}

func (u *udp) bind(at netip.AddrPort) (uint16, error) {
	if u.v6 {
		_ = unix.SetsockoptInt(u.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0) // without it IPv4 peers use TCP alone
	}
	err := unix.Bind(u.fd, sockaddr(at))
	if errors.Is(err, unix.EADDRINUSE) {
		err = unix.Bind(u.fd, sockaddr(netip.AddrPortFrom(at.Addr(), 0)))
	}
	if err != nil {
		return 0, err
	}
	sa, err := unix.Getsockname(u.fd)
	if err != nil {
		return 0, err
	}
	switch x := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(x.Port), nil
	case *unix.SockaddrInet6:
		return uint16(x.Port), nil
	}
	return 0, fmt.Errorf("address of type %T", sa)
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}

// tune sets the options of the socket. Packets are not cut by routers: a packet that is
// larger than the path permits is lost, which is how the path is probed.
func (u *udp) tune() error {
	_ = unix.SetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer) // smaller buffers lose more
	_ = unix.SetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer) // as above
	if u.v6 {
		_ = unix.SetsockoptInt(u.fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE) // for peers by IPv4 alone
	}
	if err := unix.SetsockoptInt(u.fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE); err != nil && !u.v6 {
		return fmt.Errorf("IP_MTU_DISCOVER: %w", err)
	}
	if err := unix.SetsockoptInt(u.fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1); err != nil {
		return fmt.Errorf("UDP_GRO: %w", err)
	}
	return nil
}

// credit returns how many bytes may be asked of all peers together, so that their answers fit
// into the socket's buffer, which counts bytes.
func (u *udp) credit() (bytes, slot uint64) {
	n, err := unix.GetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return creditLeast, 0
	}
	return min(max(uint64(n)/creditShare, creditLeast), creditMost), 0
}

// full implements carrier. A packet takes at least leastPacket of the socket's buffer.
func (u *udp) full() int {
	n, err := unix.GetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		n = 2 * socketBuffer // the kernel doubles what it was asked for
	}
	return n/(receiveBatches*leastPacket) + 1
}

// sendSingle sends the packets of a batch one by one. Those for which there is no room are
// lost.
func (u *udp) sendSingle(b *batch) {
	for data := b.data; len(data) > 0; {
		n := min(b.size, len(data))
		u.stats.Sends++
		if u.sendOne(b.to, data[:n]) != nil {
			u.stats.SendErrors++
		}
		data = data[n:]
	}
}

func (u *udp) descriptor() int { return u.fd }

func (u *udp) close() error { return unix.Close(u.fd) }

// addressOf converts an address to the socket's family.
func (u *udp) addressOf(at netip.AddrPort) (a address, err error) {
	ip := at.Addr().Unmap()
	if !u.v6 && !ip.Is4() {
		return a, fmt.Errorf("ether: %v has no IPv4 address, and this sidecar listens on one", at)
	}
	port := [2]byte{byte(at.Port() >> 8), byte(at.Port())}
	if !u.v6 {
		four := ip.As4()
		binary.NativeEndian.PutUint16(a.raw[:], unix.AF_INET)
		copy(a.raw[2:], port[:])
		copy(a.raw[4:], four[:])
		a.n = unix.SizeofSockaddrInet4
		return a, nil
	}
	sixteen := ip.As16() // an IPv4 address is mapped
	binary.NativeEndian.PutUint16(a.raw[:], unix.AF_INET6)
	copy(a.raw[2:], port[:])
	copy(a.raw[8:], sixteen[:])
	a.n = unix.SizeofSockaddrInet6
	return a, nil
}
