package ether

import "net/netip"

// carrier moves packets between hosts; it may lose, repeat and reorder them.
type carrier interface {
	// send sends batches, and returns how many it has accepted. If that is fewer than all,
	// the carrier is full, and Poll offers the rest again. A batch that the network
	// refuses is lost, and counts as accepted. Packets that were accepted are cut off a batch
	// that remains.
	send(list []batch) int
	// receive returns what has arrived; the memory is valid until the next call. More may
	// have arrived, or the memory is to be given back, if more is true.
	receive() (list []arrival, more bool)
	// full returns how many calls of receive a full ring or buffer takes.
	full() int
	// dropped returns how many packets the kernel has dropped on this side since the last call.
	dropped() uint64
	// sendOne sends one packet at once. Goroutines other than the engine's may call it.
	sendOne(to *address, packet []byte) error
	// addressOf converts an address of UDP to the carrier's form.
	addressOf(at netip.AddrPort) (address, error)
	// descriptor returns a descriptor that is readable when receive would return
	// something, or -1.
	descriptor() int
	close() error
}

// batch is packets for one host: data holds packets of size bytes, of which the last may be
// smaller.
type batch struct {
	to   *address
	data []byte
	size int
}

// batchMax bounds a batch: the kernel takes at most 64 segments in one call in releases
// before 6.9, and 65,507 bytes (UDP_SEGMENT, udp(7); the number of segments is
// UDP_MAX_SEGMENTS).
const (
	batchPackets = 64
	batchBytes   = 64_000
)

// arrival is packets of one host, as batch holds them.
type arrival struct {
	data []byte
	size int
	from address
}
