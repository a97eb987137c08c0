package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// RTSBody is the payload of RTS (§5.2): the location of the source, if the sender could
// register it, for a receiver that reads remotely.
type RTSBody struct {
	Key   uint64 // registration key; 0: not registered
	Addr  uint64 // address under Key
	Last  uint8  // last byte of the source (paper 001, GET)
	About uint32 // of a collective's message: 24 bits that describe the operation (§5.1)
	Data  uint32 // data of the message, with FlagData
}

// RTSBytes is the size of an RTSBody.
const RTSBytes = 24

// Encode writes r to b.
func (r *RTSBody) Encode(b []byte) int {
	_ = b[RTSBytes-1]
	binary.LittleEndian.PutUint64(b[0:], r.Key)
	binary.LittleEndian.PutUint64(b[8:], r.Addr)
	binary.LittleEndian.PutUint64(b[16:], uint64(r.Last)|uint64(r.About&0xffffff)<<8|uint64(r.Data)<<32)
	return RTSBytes
}

// Decode reads r from b.
func (r *RTSBody) Decode(b []byte) error {
	if len(b) != RTSBytes {
		return fmt.Errorf("%w: rts body of %d bytes, want %d", ErrMalformed, len(b), RTSBytes)
	}
	r.Key, r.Addr, r.Last = binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:]), b[16]
	r.About = binary.LittleEndian.Uint32(b[16:]) >> 8
	r.Data = binary.LittleEndian.Uint32(b[20:])
	return nil
}

// PullBody is the payload of Pull (§5.3): the part of the message that the receiver asks
// for, and the destination of a remote write.
type PullBody struct {
	Offset, Bytes uint64
	Key, Addr     uint64 // Key 0: send Data frames instead
}

// PullBytes is the size of a PullBody.
const PullBytes = 32

// Encode writes p to b.
func (p *PullBody) Encode(b []byte) int {
	_ = b[PullBytes-1]
	for i, v := range [4]uint64{p.Offset, p.Bytes, p.Key, p.Addr} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return PullBytes
}

// Decode reads p from b.
func (p *PullBody) Decode(b []byte) error {
	if len(b) != PullBytes {
		return fmt.Errorf("%w: pull body of %d bytes, want %d", ErrMalformed, len(b), PullBytes)
	}
	p.Offset, p.Bytes = binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
	p.Key, p.Addr = binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	return nil
}

// ReadyBody is the payload of Ready (§5.4): memory where a message of exactly the
// receive's size may be written before it is announced.
type ReadyBody struct {
	Key, Addr uint64
	Seq       uint64 // last frame that had arrived when the receive was posted
	Guard     uint8  // value of the last byte until the message has arrived
	Poll      bool   // the last byte shows the arrival; otherwise the link's notification does
}

// ReadyBytes is the size of a ReadyBody.
const ReadyBytes = 32

// Encode writes r to b.
func (r *ReadyBody) Encode(b []byte) int {
	_ = b[ReadyBytes-1]
	word := uint64(r.Guard)
	if r.Poll {
		word |= 1 << 8
	}
	for i, v := range [4]uint64{r.Key, r.Addr, r.Seq, word} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return ReadyBytes
}

// Decode reads r from b.
func (r *ReadyBody) Decode(b []byte) error {
	if len(b) != ReadyBytes {
		return fmt.Errorf("%w: ready body of %d bytes, want %d", ErrMalformed, len(b), ReadyBytes)
	}
	r.Key, r.Addr, r.Seq = binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	word := binary.LittleEndian.Uint64(b[24:])
	r.Guard, r.Poll = uint8(word), word>>8 == 1
	if r.Key == 0 || word>>8 > 1 {
		return fmt.Errorf("%w: ready with key %d, flags %#x", ErrMalformed, r.Key, word>>8)
	}
	return nil
}

// RingBody is the payload of Ring (§5.7): memory where a peer may write small frames.
type RingBody struct {
	Key, Addr uint64
	Slots     uint32
	SlotBytes uint32
	Notice    uint32 // notification of a write to the first slot; those of the other slots follow it
}

// RingBytes is the size of a RingBody.
const RingBytes = 32

// Encode writes r to b.
func (r *RingBody) Encode(b []byte) int {
	_ = b[RingBytes-1]
	binary.LittleEndian.PutUint64(b[0:], r.Key)
	binary.LittleEndian.PutUint64(b[8:], r.Addr)
	binary.LittleEndian.PutUint32(b[16:], r.Slots)
	binary.LittleEndian.PutUint32(b[20:], r.SlotBytes)
	binary.LittleEndian.PutUint64(b[24:], uint64(r.Notice))
	return RingBytes
}

// Decode reads r from b.
func (r *RingBody) Decode(b []byte) error {
	if len(b) != RingBytes {
		return fmt.Errorf("%w: ring body of %d bytes, want %d", ErrMalformed, len(b), RingBytes)
	}
	r.Key, r.Addr = binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
	r.Slots, r.SlotBytes = binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:])
	r.Notice = binary.LittleEndian.Uint32(b[24:])
	if r.Notice == 0 || r.Slots > math.MaxUint32-r.Notice {
		return fmt.Errorf("%w: ring of %d slots with notifications from %d on", ErrMalformed, r.Slots, r.Notice)
	}
	if r.Key == 0 || r.Slots == 0 || r.SlotBytes == 0 || r.SlotBytes%Align != 0 {
		return fmt.Errorf("%w: ring of %d slots of %d bytes", ErrMalformed, r.Slots, r.SlotBytes)
	}
	return nil
}

// ExposedBody is the payload of Exposed (§5.6): the location of a window.
type ExposedBody struct {
	Key  uint64 // 0: the window is accessed by frames
	Addr uint64 // address of its first byte
	Len  uint64 // bytes
}

// ExposedBytes is the size of an ExposedBody.
const ExposedBytes = 24

// Encode writes x to b.
func (x *ExposedBody) Encode(b []byte) int {
	_ = b[ExposedBytes-1]
	for i, v := range [3]uint64{x.Key, x.Addr, x.Len} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return ExposedBytes
}

// Decode reads x from b.
func (x *ExposedBody) Decode(b []byte) error {
	if len(b) != ExposedBytes {
		return fmt.Errorf("%w: exposed body of %d bytes, want %d", ErrMalformed, len(b), ExposedBytes)
	}
	x.Key, x.Addr, x.Len = binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	if x.Len > math.MaxUint64-x.Addr {
		return fmt.Errorf("%w: a window of %d bytes at %#x", ErrMalformed, x.Len, x.Addr)
	}
	return nil
}

// TailBytes is the size of the word behind a frame in a ring's slot: the number of the
// frame among those of the ring, from 1.
const TailBytes = 8
