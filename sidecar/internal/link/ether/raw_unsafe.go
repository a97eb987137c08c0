package ether

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawParts is the memory that a header of a raw frame refers to.
type rawParts struct {
	iov  [2]unix.Iovec
	size [headRaw]byte
}

// prepare fills in what all calls have in common.
func (r *raw) prepare() {
	for i := range r.out {
		m := &r.outParts[i]
		m.iov[0].Base = &m.size[0]
		m.iov[0].SetLen(headRaw)
		r.out[i].Iov = &m.iov[0]
		r.out[i].SetIovlen(len(m.iov))
	}
	r.call = r.sendmmsg
}

// setRaw makes a message of a packet.
func (h *header) setRaw(m *rawParts, to *address, packet []byte) {
	binary.LittleEndian.PutUint16(m.size[:], uint16(len(packet)))
	m.iov[1].Base = &packet[0]
	m.iov[1].SetLen(len(packet))
	h.Name, h.Namelen = &to.raw[0], to.n
}

// sendmmsg sends the first n messages. The call is raw, as those of udp.
func (r *raw) sendmmsg(n int) (int, unix.Errno) {
	k, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(r.fd), uintptr(unsafe.Pointer(&r.out[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
	return int(k), e
}

// sendOne implements carrier.
func (r *raw) sendOne(to *address, packet []byte) error {
	if headRaw+len(packet) > r.mtu {
		return unix.EMSGSIZE
	}
	m := new(struct {
		header
		rawParts
	})
	m.iov[0].Base = &m.size[0]
	m.iov[0].SetLen(headRaw)
	m.Iov = &m.iov[0]
	m.SetIovlen(len(m.iov))
	m.setRaw(&m.rawParts, to, packet)
	_, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(r.fd), uintptr(unsafe.Pointer(&m.Msghdr)), unix.MSG_DONTWAIT)
	if e != 0 {
		return e
	}
	return nil
}

// loadStatus returns the status of a slot. What the kernel wrote before the status is read
// after it.
func loadStatus(slot []byte) uint32 { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&slot[0]))) }

// storeStatus sets the status of a slot after all that was read in it.
func storeStatus(slot []byte, status uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&slot[0])), status)
}
