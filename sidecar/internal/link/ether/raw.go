package ether

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
	"github.com/outrigger-hpc/outrigger/api/memory"
)

// Raw is a packet socket for frames of raw Ethernet, as the node's agent makes it: of type
// SOCK_DGRAM, so that the kernel writes the source address; bound to an interface and to
// grant.EtherType; with PACKET_IGNORE_OUTGOING and a locked filter that passes frames of the
// ethertype to the interface's own address. The link sets its ring, which needs no privilege.
type Raw struct {
	FD int // New takes ownership of it, also if it fails
}

// raw is the carrier over a packet socket (packet(7)). The kernel copies frames into a ring
// of memory that it shares with this process (TPACKET_V2, networking/packet_mmap.rst), so
// that receiving needs no system call. The payload of a frame is, little-endian:
//
//	0 size of the packet u16   2 packet   zeros, up to the 46 bytes that Ethernet wants
type raw struct {
	fd       int
	at       place
	name     string // of the interface
	mtu      int    // of the interface
	stats    *Stats
	ring     []byte
	slot     int // bytes of a slot of the ring
	next     int // slot that the kernel fills next, or has filled
	held     int // slots before it that the kernel does not have back yet
	arrivals [arrivalsRaw]arrival
	out      [packetsRaw]header
	outParts [packetsRaw]rawParts
	call     func(n int) (int, unix.Errno) // sends the first n of out
}

const (
	headRaw     = 2
	arrivalsRaw = 64 // slots of one receive: as many packets as a batch has
	packetsRaw  = 64 // of one system call
	blockRaw    = 1 << 20
	packetMost  = headBytes + bodyMost + tagBytes
)

// Of a slot of the ring: struct tpacket2_hdr, then the source as a struct sockaddr_ll, then
// the payload at the offset that the header says.
const (
	slotSize   = 4  // u32: bytes of the payload
	slotThere  = 8  // u32: of which the slot has so many
	slotOffset = 12 // u16
	slotSource = unix.SizeofTpacket2Hdr
	slotData   = 80 // where the kernel puts the payload, and no earlier than behind the source
	slotLeast  = 2048
)

// openRaw sets the ring of a packet socket.
func openRaw(cfg *Raw, stats *Stats) (*raw, error) {
	r := &raw{fd: cfg.FD, stats: stats}
	err := r.identify()
	if err == nil {
		err = r.openRing()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ether: packet socket: %w", err), unix.Close(cfg.FD))
	}
	r.prepare()
	return r, nil
}

// identify asks the kernel for what the socket is bound to.
func (r *raw) identify() error {
	kind, err := unix.GetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w", r.fd, err)
	}
	sa, err := unix.Getsockname(r.fd)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w", r.fd, err)
	}
	at, ok := sa.(*unix.SockaddrLinklayer)
	switch {
	case !ok || kind != unix.SOCK_DGRAM:
		return fmt.Errorf("descriptor %d is a socket of type %d with an address of type %T, want a packet socket of type %d (SOCK_DGRAM)", r.fd, kind, sa, unix.SOCK_DGRAM)
	case at.Ifindex <= 0 || networkOrder(at.Protocol) != grant.EtherType:
		return fmt.Errorf("it is bound to interface %d and ethertype %#04x, want an interface and %#04x: use an agent of this sidecar's release", at.Ifindex, networkOrder(at.Protocol), grant.EtherType)
	case at.Hatype != unix.ARPHRD_ETHER || at.Halen != hardwareBytes:
		return fmt.Errorf("interface %d has the hardware type %d and an address of %d bytes, want Ethernet", at.Ifindex, at.Hatype, at.Halen)
	}
	r.at = place{kind: kindRaw, index: int32(at.Ifindex), hardware: hardware(at.Addr[:])}
	req, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	req.SetUint32(uint32(at.Ifindex))
	if err := unix.IoctlIfreq(r.fd, unix.SIOCGIFNAME, req); err != nil {
		return fmt.Errorf("name of interface %d: %w", at.Ifindex, err)
	}
	r.name = req.Name()
	if err := unix.IoctlIfreq(r.fd, unix.SIOCGIFMTU, req); err != nil {
		return fmt.Errorf("MTU of %s: %w", r.name, err)
	}
	r.mtu = int(req.Uint32())
	return nil
}

// openRing sets the ring and maps it. A slot has room for the largest packet that the interface
// takes; what is longer is cut, and dropped.
func (r *raw) openRing() error {
	r.slot = slotBytes(r.mtu)
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return fmt.Errorf("PACKET_VERSION: %w", err)
	}
	req := unix.TpacketReq{Block_size: blockRaw, Block_nr: memory.EtherRing / blockRaw, Frame_size: uint32(r.slot), Frame_nr: uint32(memory.EtherRing / r.slot)}
	if err := unix.SetsockoptTpacketReq(r.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return fmt.Errorf("a ring of %d bytes: %w", memory.EtherRing, err)
	}
	var err error
	if r.ring, err = unix.Mmap(r.fd, 0, memory.EtherRing, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mapping the ring: %w", err)
	}
	return nil
}

// slotBytes returns the size of a slot: a power of two, so that slots fill a block.
func slotBytes(mtu int) int {
	n := slotLeast
	for n < slotData+min(mtu, headRaw+packetMost) {
		n *= 2
	}
	return n
}

// slots returns the number of slots.
func (r *raw) slots() int { return len(r.ring) / r.slot }

// slotAt returns the memory of a slot.
func (r *raw) slotAt(n int) []byte { return r.ring[n*r.slot : (n+1)*r.slot : (n+1)*r.slot] }

// receive implements carrier. The slots of the last call go back to the kernel. More is true
// if slots were taken, so that the next call gives these back, which costs no system call.
func (r *raw) receive() (list []arrival, more bool) {
	r.giveBack()
	n, losing := 0, false
	for r.held < arrivalsRaw {
		slot := r.slotAt(r.next)
		status := loadStatus(slot)
		if status&unix.TP_STATUS_USER == 0 {
			break
		}
		losing = losing || status&unix.TP_STATUS_LOSING != 0
		if a := &r.arrivals[n]; r.take(slot, a) {
			n++
		} else {
			r.stats.Odd++
		}
		r.held++
		if r.next++; r.next == r.slots() {
			r.next = 0
		}
	}
	if losing {
		r.stats.Dropped += r.dropped()
	}
	return r.arrivals[:n], r.held > 0
}

// giveBack gives the slots back whose packets were handed over.
func (r *raw) giveBack() {
	for ; r.held > 0; r.held-- {
		n := r.next - r.held
		if n < 0 {
			n += r.slots()
		}
		storeStatus(r.slotAt(n), unix.TP_STATUS_KERNEL)
	}
}

// take sets an arrival to the packet in a slot. It returns false if there is none: the frame
// was cut, has no whole packet, or is not one of those that the agent's filter passes.
func (r *raw) take(slot []byte, a *arrival) bool {
	native := binary.NativeEndian
	size, there, off := native.Uint32(slot[slotSize:]), native.Uint32(slot[slotThere:]), int(native.Uint16(slot[slotOffset:]))
	source := slot[slotSource:][:unix.SizeofSockaddrLinklayer]
	if size != there || there < headRaw || off < slotSource+unix.SizeofSockaddrLinklayer || off > len(slot) || uint64(there) > uint64(len(slot)-off) {
		return false
	}
	if binary.BigEndian.Uint16(source[2:]) != grant.EtherType || source[10] != unix.PACKET_HOST || source[11] != hardwareBytes {
		return false
	}
	payload := slot[off:][:there]
	n := int(binary.LittleEndian.Uint16(payload))
	if n == 0 || n > len(payload)-headRaw {
		return false
	}
	a.data, a.size = payload[headRaw:][:n:n], n
	a.from = r.at.addressOf(hardware(source[12:]))
	return true
}

// dropped implements carrier. The kernel marks slots until it was asked.
func (r *raw) dropped() uint64 {
	s, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0 // they are counted next time
	}
	return uint64(s.Drops)
}

// full implements carrier. The last call gives slots back.
func (r *raw) full() int { return (r.slots()+arrivalsRaw-1)/arrivalsRaw + 1 }

// send implements carrier. Of a batch that the kernel accepts in part, the rest remains.
func (r *raw) send(list []batch) (sent int) {
	for sent < len(list) {
		r.stats.Sends++
		n, e := r.call(r.fill(list[sent:]))
		switch {
		case e == 0 && n > 0:
			sent += cut(list[sent:], n)
		case e == unix.EAGAIN:
			return sent
		case e == unix.EINTR:
		default: // the interface is down, or takes smaller frames than before, or its queue is full (ENOBUFS): as a lost packet
			r.stats.SendErrors++
			sent += cut(list[sent:], 1)
		}
	}
	return sent
}

// fill makes messages of the first packets of list, and returns their number.
func (r *raw) fill(list []batch) (n int) {
	for i := range list {
		b := &list[i]
		for data := b.data; len(data) > 0; n++ {
			if n == len(r.out) {
				return n
			}
			k := min(b.size, len(data))
			r.out[n].setRaw(&r.outParts[n], b.to, data[:k])
			data = data[k:]
		}
	}
	return n
}

// cut removes the first packets of list, and returns the number of batches that are sent.
func cut(list []batch, packets int) int {
	for i := range list {
		b := &list[i]
		n := (len(b.data) + b.size - 1) / b.size
		if packets < n {
			b.data = b.data[packets*b.size:]
			return i
		}
		packets -= n
	}
	return len(list)
}

// body returns the largest body of a packet that a slot takes.
func (r *raw) body() uint64 {
	return uint64(max(min(r.mtu-headRaw, packetMost)-headBytes-tagBytes, 0))
}

// credit returns how many bytes may be asked of all peers together, so that their answers fit
// into the ring, and the least charge of a fragment: each one takes a slot, also if a peer's
// MTU is smaller than this side's.
func (r *raw) credit() (bytes, slot uint64) {
	return min(max(uint64(r.slots())*r.body()/creditShare, creditLeast), creditMost), r.body()
}

// addressOf implements carrier. A peer's hardware address is in its offer.
func (r *raw) addressOf(at netip.AddrPort) (address, error) {
	return address{}, fmt.Errorf("ether: %v is an address of UDP, and this sidecar sends raw Ethernet", at)
}

func (r *raw) descriptor() int { return r.fd }

// close implements carrier.
func (r *raw) close() error {
	return errors.Join(unix.Munmap(r.ring), unix.Close(r.fd))
}
