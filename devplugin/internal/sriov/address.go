package sriov

import (
	"crypto/sha256"
	"encoding/binary"
	"net"
)

// numberBits are the bits of an address that hold the number of the virtual
// function, so that the functions of one card never collide.
const numberBits = 12

// derive returns the address of a virtual function, which is derived from its card's identity
// and its number: the same after every boot and on every node, and different for every card. n
// is 6 for a MAC address (IEEE 802, 8.2) and 8 for a GUID (EUI-64). The address is unicast and
// locally administered; its other bits, 34 or 50, are a hash of the identity. In a network of
// 1,000 cards, two cards have the same MAC addresses with a probability of 1 in 34,000.
func derive(identity string, number, n int) net.HardwareAddr {
	sum := sha256.Sum256([]byte("outrigger.dev/sriov\x00" + identity))
	address := make(net.HardwareAddr, n)
	copy(address, sum[:])
	address[0] = address[0]&^0x03 | 0x02
	tail := address[n-2:]
	low := binary.BigEndian.Uint16(tail)&^(1<<numberBits-1) | uint16(number)&(1<<numberBits-1)
	binary.BigEndian.PutUint16(tail, low)
	return address
}
