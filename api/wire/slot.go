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
	h.encodeFront((*[SlotHeadMin]byte)(b[:]))
	binary.LittleEndian.PutUint64(b[48:], h.B)
}

// DecodeSlot reads and checks what EncodeSlot wrote; B is what is behind the header where
// its flags do not give it a meaning, and is 0 then. Every error wraps ErrMalformed.
func (h *Header) DecodeSlot(b *[SlotHeadMax]byte) error {
	h.decodeFront((*[SlotHeadMin]byte)(b[:]))
	h.A, h.B = uint64(h.Length), 0
	if h.Flags&slotB != 0 {
		h.B = binary.LittleEndian.Uint64(b[48:])
	}
	if h.Type != Eager {
		return fmt.Errorf("%w: %v in a ring", ErrMalformed, h.Type)
	}
	return h.check(b[0], b[3])
}
