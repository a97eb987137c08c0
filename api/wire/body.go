package wire

import (
	"encoding/binary"
	"fmt"
)

// RTSBody is the payload of RTS (§5.2): where the source lies, when the sender
// could register it, for a receiver that reads remotely.
type RTSBody struct {
	Key  uint64 // registration key; 0: not registered
	Addr uint64 // address under Key
	Last uint8  // last byte of the source (paper 001, GET)
}

// RTSBytes is the size of an RTSBody.
const RTSBytes = 24

// Encode writes r to b.
func (r *RTSBody) Encode(b []byte) int {
	_ = b[RTSBytes-1]
	binary.LittleEndian.PutUint64(b[0:], r.Key)
	binary.LittleEndian.PutUint64(b[8:], r.Addr)
	binary.LittleEndian.PutUint64(b[16:], uint64(r.Last))
	return RTSBytes
}

// Decode reads r from b.
func (r *RTSBody) Decode(b []byte) error {
	if len(b) != RTSBytes {
		return fmt.Errorf("%w: rts body of %d bytes", ErrMalformed, len(b))
	}
	r.Key, r.Addr, r.Last = binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:]), b[16]
	return nil
}

// PullBody is the payload of Pull (§5.3): which part of the message the
// receiver wants, and where a remote write may put it.
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
		return fmt.Errorf("%w: pull body of %d bytes", ErrMalformed, len(b))
	}
	p.Offset, p.Bytes = binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
	p.Key, p.Addr = binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	return nil
}
