package shm

import "encoding/binary"

// Descriptor is the decoded form of a ring entry (§4.1). Offsets in bytes:
//
//	 0 Seq u32 (the ring's)   4 Op u8   5 Flags u8   6 Class u8   7 InlineLen u8
//	 8 Req u32   12 Peer u32   16 Context u32   20 Status u32   24 Tag u64
//	32 Addr u64  40 Len u64    48 Aux u64       56 Aux2 u64
//
// With ClassInline bytes 32..63 are the payload and the four words have no
// other meaning. Little-endian throughout.
type Descriptor struct {
	Op        Op
	Flags     uint8
	Class     Class
	InlineLen uint8
	Req       uint32
	Peer      uint32
	Context   uint32
	Status    Status
	Tag       uint64
	Body      [InlineMax]byte
}

// Addr returns the offset of the payload in the memory of its class.
func (d *Descriptor) Addr() uint64 { return binary.LittleEndian.Uint64(d.Body[0:]) }

// Len returns a length in bytes.
func (d *Descriptor) Len() uint64 { return binary.LittleEndian.Uint64(d.Body[8:]) }

// Aux returns the first word whose meaning depends on the operation.
func (d *Descriptor) Aux() uint64 { return binary.LittleEndian.Uint64(d.Body[16:]) }

// Aux2 returns the second word whose meaning depends on the operation.
func (d *Descriptor) Aux2() uint64 { return binary.LittleEndian.Uint64(d.Body[24:]) }

// SetBody sets the four words.
func (d *Descriptor) SetBody(addr, length, aux, aux2 uint64) {
	binary.LittleEndian.PutUint64(d.Body[0:], addr)
	binary.LittleEndian.PutUint64(d.Body[8:], length)
	binary.LittleEndian.PutUint64(d.Body[16:], aux)
	binary.LittleEndian.PutUint64(d.Body[24:], aux2)
}

// Inline returns the inline payload. Its length is bounded by InlineMax, even if InlineLen is larger.
func (d *Descriptor) Inline() []byte {
	return d.Body[:min(int(d.InlineLen), InlineMax)]
}

// SetInline stores p, at most InlineMax bytes, as the inline payload.
func (d *Descriptor) SetInline(p []byte) {
	d.Class = ClassInline
	d.InlineLen = uint8(copy(d.Body[:], p))
}

// Encode writes d's bytes 4..63 to b, which is one ring entry. Bytes 0..3 are the ring's sequence
// word and are not written.
//
//go:nosplit
func (d *Descriptor) Encode(b *[DescriptorBytes]byte) {
	binary.LittleEndian.PutUint32(b[4:], uint32(d.Op)|uint32(d.Flags)<<8|uint32(d.Class)<<16|uint32(d.InlineLen)<<24)
	binary.LittleEndian.PutUint64(b[8:], uint64(d.Req)|uint64(d.Peer)<<32)
	binary.LittleEndian.PutUint64(b[16:], uint64(d.Context)|uint64(d.Status)<<32)
	binary.LittleEndian.PutUint64(b[24:], d.Tag)
	*(*[InlineMax]byte)(b[32:]) = d.Body
}

// Decode reads b's bytes 4..63 into d. It reads each byte of b once. If a writer changes b at the
// same time, the result is a descriptor that is validated like any other.
//
//go:nosplit
func (d *Descriptor) Decode(b *[DescriptorBytes]byte) {
	w := binary.LittleEndian.Uint32(b[4:])
	d.Op, d.Flags, d.Class, d.InlineLen = Op(w), uint8(w>>8), Class(w>>16), uint8(w>>24)
	x := binary.LittleEndian.Uint64(b[8:])
	d.Req, d.Peer = uint32(x), uint32(x>>32)
	x = binary.LittleEndian.Uint64(b[16:])
	d.Context, d.Status = uint32(x), Status(x>>32)
	d.Tag = binary.LittleEndian.Uint64(b[24:])
	d.Body = *(*[InlineMax]byte)(b[32:])
}
