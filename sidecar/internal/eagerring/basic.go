package eagerring

import (
	"encoding/binary"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Basic (paper 004 §4.2): two writes for each frame, and one of the receiver for freed
// slots. The head is replicated at the receiver and the tail at the sender.
//
//	slots   │ header │ payload │ 0… │ number u64 │ …
//	control │ head u64: slots filled here │ tail u64: slots emptied of the other ring │
//	          ▲ polled                      ▲ read before a slot is filled again

// headAt and tailAt return the offsets of the words behind the slots.
func (k Kind) headAt() int { return Slots * k.slotBytes() }
func (k Kind) tailAt() int { return k.headAt() + 8 }

func (s *Sender) putBasic(f *link.Frame, payload []byte) []Write {
	s.writes[0] = s.putWhole(f, payload)[0]
	at := s.kind.headAt()
	binary.LittleEndian.PutUint64(s.copied[at:], s.written+1)
	s.writes[1] = Write{At: uint64(at), Len: 8, Slot: -1}
	return s.writes[:2]
}

// reclaimBasic frees the slots that the peer has emptied, as far as its value is
// possible.
func (s *Sender) reclaimBasic() {
	tail := binary.LittleEndian.Uint64(s.own[s.kind.tailAt():])
	if tail > s.freed && tail <= s.written {
		s.freed = tail
	}
}

// Emptied records how many slots of the other ring have been emptied, and returns the
// write that tells its sender.
func (s *Sender) Emptied(taken uint64) (Write, bool) {
	if !s.open || s.kind != Basic {
		return Write{}, false
	}
	at := s.kind.tailAt()
	binary.LittleEndian.PutUint64(s.copied[at:], taken)
	s.inFlight++
	return Write{At: uint64(at), Len: 8, Slot: -1}, true
}
