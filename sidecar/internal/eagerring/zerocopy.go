package eagerring

import (
	"encoding/binary"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// ZeroCopy: the payload is written from its memory to the end of the slot, with its
// header and flag behind it (paper 000 §3 avoids the copy with a gather list; paper 004
// §5 with a read of its own, which is rendezvous here).
//
//	slot  │ … │ payload │ header 56 │ number u64 │
//	                                  ▲ polled

func (s *Sender) putGathered(f *link.Frame, payload []byte) []Write {
	slot := s.kind.slotOf(s.written)
	head := slot + s.kind.slotBytes() - wire.TailBytes - wire.SlotHeadMax
	f.Head.EncodeSlot((*[wire.SlotHeadMax]byte)(s.copied[head:]))
	binary.LittleEndian.PutUint64(s.copied[head+wire.SlotHeadMax:], s.written+1)
	at, n := head-len(payload), len(payload)
	last := Write{At: uint64(head), Len: wire.SlotHeadMax + wire.TailBytes, Slot: int(s.written % Slots)}
	if n == 0 || f.Payload.Region == 0 { // no payload, or it is in the frame: one write
		copy(s.copied[at:], payload)
		last.At, last.Len = uint64(at), last.Len+uint64(n)
		s.writes[0] = last
		return s.writes[:1]
	}
	s.writes[0] = Write{Payload: true, At: uint64(at), Len: uint64(n), Slot: -1}
	s.writes[1] = last
	return s.writes[:2]
}
