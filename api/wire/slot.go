package wire

import (
	"encoding/binary"
	"fmt"
)

// A frame in a slot of a ring (§5.7) is eager, so that its header is told with less: A is
// the length, and B means something with some flags only. A message of 8 bytes and the
// word behind it are then one line of a processor's cache.

// SlotHeadMin and SlotHeadMax are the sizes of a header in a slot, without and with B.
const (
	SlotHeadMin = 48
	SlotHeadMax = 56
)

// slotB are the flags with which B is in a slot's header.
const slotB = FlagSync | FlagData | FlagReply

// SlotHead is the size of the header in a slot of an eager frame with these flags.
func SlotHead(flags uint8) int {
	if flags&slotB != 0 {
		return SlotHeadMax
	}
	return SlotHeadMin
}

// EncodeSlot writes h to b as a slot has it, always with B: who needs it not writes
// SlotHead bytes of it. Preconditions: Type is Eager, and A the length.
func (h *Header) EncodeSlot(b *[SlotHeadMax]byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], Version|uint64(h.Type)<<8|uint64(h.Flags)<<16|uint64(h.Length)<<32)
	le.PutUint64(b[8:], h.Seq)
	le.PutUint64(b[16:], h.Ack)
	le.PutUint64(b[24:], uint64(h.Credit)|uint64(h.Context)<<32)
	le.PutUint64(b[32:], uint64(h.Src)|uint64(h.Dst)<<32)
	le.PutUint64(b[40:], h.Tag)
	le.PutUint64(b[48:], h.B)
}

// DecodeSlot reads and checks what EncodeSlot wrote; B is what is behind the header where
// its flags do not give it a meaning, and is 0 then. Every error wraps ErrMalformed.
func (h *Header) DecodeSlot(b *[SlotHeadMax]byte) error {
	le := binary.LittleEndian
	w := le.Uint64(b[0:])
	h.Type, h.Flags, h.Length = Type(w>>8), uint8(w>>16), uint32(w>>32)
	h.Seq, h.Ack = le.Uint64(b[8:]), le.Uint64(b[16:])
	w = le.Uint64(b[24:])
	h.Credit, h.Context = uint32(w), uint32(w>>32)
	w = le.Uint64(b[32:])
	h.Src, h.Dst = uint32(w), uint32(w>>32)
	h.Tag, h.A, h.B = le.Uint64(b[40:]), uint64(h.Length), 0
	if h.Flags&slotB != 0 {
		h.B = le.Uint64(b[48:])
	}
	if h.Type != Eager {
		return fmt.Errorf("%w: %v in a ring", ErrMalformed, h.Type)
	}
	return h.check(b[0], b[3])
}
