package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// offer describes one side of a queue pair for the other side (api/wire/PROTOCOL.md
// §2.1).
type offer struct {
	fabric  Fabric
	mtu     uint8  // code of ibv_mtu: 1 for 256 bytes to 5 for 4,096
	reads   uint8  // outstanding reads of the peer that the queue pair answers
	lid     uint16 // InfiniBand only
	slots   uint16 // number of receives posted
	pair    uint32 // number of the queue pair, 24 bits
	packet  uint32 // number of the queue pair's first packet, 24 bits
	slotLen uint32
	gid     [16]byte
	lends   bool   // the peer may ask for lentQPs
	device  string // for the log
}

// Fabric is the network of a port, and its kind of addresses.
type Fabric uint8

// Fabrics. A port reaches only ports of the same one.
const (
	FabricNone Fabric = iota
	InfiniBand
	RoCEv1
	RoCEv2
)

func (f Fabric) String() string {
	switch f {
	case InfiniBand:
		return "InfiniBand"
	case RoCEv1:
		return "RoCE v1"
	case RoCEv2:
		return "RoCE v2"
	}
	return fmt.Sprintf("fabric(%d)", uint8(f))
}

const (
	offerVersion = 2
	offerFixed   = 40
	offerLends   = 1  // flag: lends
	deviceMax    = 63 // bytes of a device's name; IBV_SYSFS_NAME_MAX is 64
	// OfferMax is the longest offer.
	OfferMax = offerFixed + deviceMax
)

var errOffer = errors.New("malformed offer of a queue pair")

func (o *offer) encode() []byte {
	b := make([]byte, offerFixed, OfferMax)
	le := binary.LittleEndian
	b[0], b[1], b[2], b[3] = offerVersion, byte(o.fabric), o.mtu, o.reads
	le.PutUint16(b[4:], o.lid)
	le.PutUint16(b[6:], o.slots)
	le.PutUint32(b[8:], o.pair)
	le.PutUint32(b[12:], o.packet)
	le.PutUint32(b[16:], o.slotLen)
	copy(b[20:36], o.gid[:])
	if o.lends {
		b[36] = offerLends
	}
	return append(b, o.device[:min(len(o.device), deviceMax)]...)
}

func parseOffer(b []byte) (o offer, err error) {
	le := binary.LittleEndian
	switch {
	case len(b) < offerFixed || len(b) > OfferMax:
		return o, fmt.Errorf("%w: %d bytes, want %d to %d", errOffer, len(b), offerFixed, OfferMax)
	case b[0] != offerVersion:
		return o, fmt.Errorf("%w: version %d, want %d: use images of one release", errOffer, b[0], offerVersion)
	}
	o = offer{
		fabric: Fabric(b[1]), mtu: b[2], reads: b[3], lid: le.Uint16(b[4:]), slots: le.Uint16(b[6:]),
		pair: le.Uint32(b[8:]), packet: le.Uint32(b[12:]), slotLen: le.Uint32(b[16:]), gid: [16]byte(b[20:36]),
		lends: b[36] == offerLends, device: string(b[offerFixed:]),
	}
	switch {
	case o.fabric == FabricNone || o.fabric > RoCEv2:
		return o, fmt.Errorf("%w: %v", errOffer, o.fabric)
	case o.mtu < 1 || o.mtu > 5:
		return o, fmt.Errorf("%w: MTU code %d, want 1 to 5", errOffer, o.mtu)
	case o.pair > numberMax || o.packet > numberMax:
		return o, fmt.Errorf("%w: queue pair %#x, packet %#x: over 24 bits", errOffer, o.pair, o.packet)
	case o.slots != recvSlots || o.slotLen != slotBytes:
		return o, fmt.Errorf("%w: %d receives of %d bytes, want %d of %d", errOffer, o.slots, o.slotLen, recvSlots, slotBytes)
	case le.Uint32(b[36:])&^offerLends != 0:
		return o, fmt.Errorf("%w: reserved bytes are not 0", errOffer)
	case !utf8.ValidString(o.device):
		return o, fmt.Errorf("%w: the device's name is not text", errOffer)
	}
	return o, nil
}
