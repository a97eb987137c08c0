package wire

import (
	"encoding/binary"
	"fmt"
)

// A frame in a slot of a ring (§5.7) is always eager, so its header is shorter: A is the
// length, and B has a meaning only with some flags. A message of 8 bytes and the word
// behind it then fit in one cache line.

// SlotHeadMin and SlotHeadMax are the sizes of a header in a slot, without and with B.
const (
	SlotHeadMin = 48
	SlotHeadMax = 56
)

// slotB are the flags with which a slot's header has B.
const slotB = FlagSync | FlagData | FlagReply

// SlotHead returns the size of the header of an eager frame with these flags in a slot.
func SlotHead(flags uint8) int {
	if flags&slotB != 0 {
		return SlotHeadMax
	}
	return SlotHeadMin
}

// EncodeSlot writes h to b as in a slot, always with B: a caller that does not need B
// uses the first SlotHead bytes. Preconditions: Type is Eager, and A is the length.
func (h *Header) EncodeSlot(b *[SlotHeadMax]byte) {
	h.encodeFront((*[SlotHeadMin]byte)(b[:]))
	binary.LittleEndian.PutUint64(b[48:], h.B)
}

// DecodeSlot reads and checks the bytes that EncodeSlot writes. If the flags give B no
// meaning, the bytes behind the header are ignored, and B is 0. Every error wraps
// ErrMalformed.
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
