package ether

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// header is struct mmsghdr.
type header struct {
	unix.Msghdr
	n uint32
	_ uint32
}

// parts is the memory that a header refers to.
type parts struct {
	iov     unix.Iovec
	name    address
	control struct {
		unix.Cmsghdr
		value uint16 // of UDP_SEGMENT; UDP_GRO has an int, whose upper half is rest
		rest  uint16
		_     uint32
	}
}

// prepare fills in what all calls have in common.
func (u *udp) prepare() {
	for i := range u.in {
		h, m := &u.in[i], &u.inParts[i]
		m.iov.Base = &u.input[i*inputBytes]
		m.iov.SetLen(inputBytes)
		h.Name, h.Iov = &m.name.raw[0], &m.iov
		h.SetIovlen(1)
		h.Control = (*byte)(unsafe.Pointer(&m.control))
	}
	for i := range u.out {
		h, m := &u.out[i], &u.outParts[i]
		h.Iov = &m.iov
		h.SetIovlen(1)
		m.control.Level, m.control.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
		m.control.SetLen(unix.CmsgLen(2))
	}
}

// The calls below are raw: the socket never blocks, so the Go scheduler need not know of
// them.

// send implements carrier.
func (u *udp) send(list []batch) (sent int) {
	for sent < len(list) {
		some := list[sent:]
		some = some[:min(len(some), sendBatches)]
		for i := range some {
			u.out[i].set(&u.outParts[i], &some[i])
		}
		u.stats.Sends++
		n, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(u.fd), uintptr(unsafe.Pointer(&u.out[0])), uintptr(len(some)), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case e == 0:
			sent += int(n)
		case e == unix.EAGAIN || e == unix.ENOBUFS:
			return sent
		case e == unix.EINTR:
		case (e == unix.EIO || e == unix.EINVAL) && u.out[0].Controllen > 0: // a device on this path does not segment such packets
			u.sendSingle(&list[sent])
			sent++
		default: // the route is gone, or a firewall refuses: as lost packets
			u.stats.SendErrors++
			sent++
		}
	}
	return sent
}

// dropped implements carrier. The kernel's counter goes on, and wraps.
func (u *udp) dropped() uint64 {
	var info [memoryInfo]uint32
	n := uint32(unsafe.Sizeof(info))
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(u.fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 || n != uint32(unsafe.Sizeof(info)) {
		return 0 // a kernel before 4.12 has no such option
	}
	d := info[memoryDrops] - u.drops
	u.drops = info[memoryDrops]
	return uint64(d)
}

// sendOne implements carrier.
func (u *udp) sendOne(to *address, packet []byte) error {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(u.fd), uintptr(unsafe.Pointer(&packet[0])), uintptr(len(packet)), unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&to.raw[0])), uintptr(to.n))
	if e != 0 {
		return e
	}
	return nil
}

func (h *header) set(m *parts, b *batch) {
	m.iov.Base = &b.data[0]
	m.iov.SetLen(len(b.data))
	h.Name, h.Namelen = &b.to.raw[0], b.to.n
	if len(b.data) <= b.size {
		h.Control, h.Controllen = nil, 0
		return
	}
	m.control.value = uint16(b.size)
	h.Control = (*byte)(unsafe.Pointer(&m.control))
	h.SetControllen(unix.CmsgSpace(2))
}

// receive implements carrier.
func (u *udp) receive() (list []arrival, more bool) {
	for i := range u.in {
		u.in[i].Namelen = uint32(len(u.inParts[i].name.raw))
		u.in[i].SetControllen(int(unsafe.Sizeof(u.inParts[i].control)))
	}
	u.stats.Receives++
	n, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(u.fd), uintptr(unsafe.Pointer(&u.in[0])), receiveBatches, unix.MSG_DONTWAIT, 0, 0)
	if e != 0 { // most often EAGAIN; an error of another packet, such as ECONNREFUSED, is lost
		return nil, false
	}
	for i := range int(n) {
		h, m, a := &u.in[i], &u.inParts[i], &u.arrivals[i]
		a.data, a.size, a.from = u.input[i*inputBytes:][:h.n], int(h.n), m.name
		a.from.n = h.Namelen
		if h.Controllen >= uint64(unix.CmsgLen(4)) && m.control.Level == unix.IPPROTO_UDP && m.control.Type == unix.UDP_GRO {
			a.size = int(m.control.value) | int(m.control.rest)<<16
		}
		a.size = max(a.size, 1)
	}
	return u.arrivals[:n], int(n) == receiveBatches
}
