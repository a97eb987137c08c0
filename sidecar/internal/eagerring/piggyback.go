package eagerring

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// PiggyBack (paper 004 §4.3): one write for each frame. The flag at the end of the slot
// is the frame's number, and lands last; acknowledgements, which the peer's own frames
// carry, free the slots.
//
//	slot  │ header │ payload │ 0… │ number u64 │
//	                               ▲ polled

func (s *Sender) putWhole(f *link.Frame, payload []byte) []Write {
	at := s.kind.slotOf(s.written)
	end := lay(s.copied[at:at+s.kind.slotBytes()], &f.Head, payload, s.written+1)
	s.writes[0] = Write{At: uint64(at), Len: uint64(end), Slot: int(s.written % Slots)}
	return s.writes[:1]
}
