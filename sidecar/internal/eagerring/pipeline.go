package eagerring

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Pipeline (paper 004 §4.4): a write for each slot of 16 KiB, so that a part is in
// flight, or copied out at the receiver, while the next is copied in.
//
//	slot n    │ header │ payload, first part │ number n u64   │
//	slot n+1  │ payload, second part         │ number n+1 u64 │

func (s *Sender) putPipelined(f *link.Frame, payload []byte) []Write {
	room := s.kind.slotBytes() - wire.TailBytes
	head, n := &f.Head, 0
	for {
		k := min(len(payload), room)
		if head != nil {
			k = min(len(payload), room-s.kind.headBytes(head.Flags))
		}
		number := s.written + uint64(n)
		at := s.kind.slotOf(number)
		end := lay(s.copied[at:at+s.kind.slotBytes()], head, payload[:k], number+1)
		s.writes[n] = Write{At: uint64(at), Len: uint64(end), Slot: int(number % Slots)}
		head, payload, n = nil, payload[k:], n+1
		if len(payload) == 0 {
			return s.writes[:n]
		}
	}
}
