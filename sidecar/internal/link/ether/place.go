package ether

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// Kinds of carriers. Numbers are never reused.
const (
	kindUDP = 0
	kindRaw = 1
)

const hardwareBytes = 6

// hardware returns the first bytes of b as a hardware address.
func hardware(b []byte) [hardwareBytes]byte { return [hardwareBytes]byte(b) }

// place is where a carrier receives packets.
type place struct {
	kind     byte
	port     uint16              // of UDP
	hardware [hardwareBytes]byte // of raw Ethernet
	index    int32               // of this side's interface, of raw Ethernet
}

// carrierNames are the names of carriers for people.
var carrierNames = [...]string{kindUDP: "UDP", kindRaw: "raw Ethernet"}

// text returns the name of the carrier.
func (p *place) text() string {
	if int(p.kind) < len(carrierNames) {
		return carrierNames[p.kind]
	}
	return fmt.Sprintf("a carrier of kind %d, which this release does not have", p.kind)
}

// path returns the name of the carrier in counters.
func (p *place) path() string {
	if p.kind == kindRaw {
		return "raw"
	}
	return "udp"
}

// addressOf returns a hardware address as a struct sockaddr_ll for this side's interface.
func (p *place) addressOf(to [hardwareBytes]byte) (a address) {
	binary.NativeEndian.PutUint16(a.raw[:], unix.AF_PACKET)
	binary.BigEndian.PutUint16(a.raw[2:], grant.EtherType)
	binary.NativeEndian.PutUint32(a.raw[4:], uint32(p.index))
	a.raw[11] = hardwareBytes
	copy(a.raw[12:], to[:])
	a.n = unix.SizeofSockaddrLinklayer
	return a
}

// check returns an error if packets cannot go to a peer's place.
func (p *place) check(theirs *place) error {
	switch {
	case p.kind != theirs.kind:
		return fmt.Errorf("ether: the peer's packets go by %s, those of this sidecar by %s: give all pods of the job an Ethernet device, or none", theirs.text(), p.text())
	case p.kind != kindRaw:
		return nil
	case theirs.hardware[0]&1 != 0 || theirs.hardware == [hardwareBytes]byte{}:
		return fmt.Errorf("ether: the peer's offer has the hardware address %v, want that of one interface", net.HardwareAddr(theirs.hardware[:]))
	case theirs.hardware == p.hardware:
		return fmt.Errorf("ether: the peer has this sidecar's hardware address %v, as interfaces of ipvlan do: raw Ethernet needs macvlan, a bridge or a device", net.HardwareAddr(theirs.hardware[:]))
	}
	return nil
}

// Errors of a path on which no probe comes back.
var (
	errNoUDP = errors.New("no packet has come back by UDP within a second: a firewall or a network policy may admit TCP alone")
	errNoRaw = fmt.Errorf("no packet has come back by raw Ethernet (ethertype %#04x) within a second: raw Ethernet passes no router, and the pods may be in different segments", grant.EtherType)
)

// unreached returns the error of a path on which no probe comes back.
func (p *place) unreached() error {
	if p.kind == kindRaw {
		return errNoRaw
	}
	return errNoUDP
}

// networkOrder returns a number of 16 bits whose bytes are in the order of the network.
func networkOrder(n uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], n)
	return binary.BigEndian.Uint16(b[:])
}
