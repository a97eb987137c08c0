package eagerring

import (
	"encoding/binary"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Sender is a peer's ring, as this side writes to it.
type Sender struct {
	kind     Kind
	offer    wire.RingBody
	number   uint64 // of the ring: ends of writes to others are told late
	open     bool
	copied   []byte // of the ring: what is written from
	own      []byte // the ring that the peer writes to, nil: none
	written  uint64 // slots filled
	freed    uint64 // of them free again
	underWay int    // writes that have not ended
	looked   bool   // the peer looks by itself
	plain    uint64 // number of the last frame that was written without a notice
	seqs     [Slots]uint64
	writes   [maxWrites]Write
}

// Open takes a peer's offer as ring number, of which copied is the copy that is written
// from. own is the ring that the peer writes to, with its word about this one; nil: there
// is none. false: the offer's slots are none of this channel's.
func (s *Sender) Open(k Kind, c link.Caps, offer *wire.RingBody, number uint64, copied, own []byte) bool {
	k = k.over(c)
	if offer.Slots != Slots || int(offer.SlotBytes) != k.slotBytes() {
		return false
	}
	*s = Sender{kind: k, offer: *offer, number: number, open: true, copied: copied, own: own}
	return true
}

// IsOpen reports that frames may go by the ring.
func (s *Sender) IsOpen() bool { return s.open }

// Number is the ring's.
func (s *Sender) Number() uint64 { return s.number }

// UnderWay is how many writes have not ended. Frames and writes may overtake each
// other: a frame of the connection waits until there are none.
func (s *Sender) UnderWay() int { return s.underWay }

// Refused gives the ring up: the link has not taken the last n writes. Those under
// way still end.
func (s *Sender) Refused(n int) { s.open, s.underWay = false, s.underWay-n }

// Key is where a write goes.
func (s *Sender) Key(w Write) link.Key { return link.Key{Key: s.offer.Key, Addr: s.offer.Addr + w.At} }

// Bytes is what a write carries that is not a frame's payload.
func (s *Sender) Bytes(w Write) []byte { return s.copied[w.At : w.At+w.Len] }

// Notice is what tells of a write, on links that notify; 0: it need not be told.
func (s *Sender) Notice(w Write) uint64 {
	if w.Slot < 0 || s.looked {
		return 0
	}
	return uint64(s.offer.Notice) + uint64(w.Slot)
}

// Looked is told whether the peer looks at its ring without being told of writes.
func (s *Sender) Looked(on bool) { s.looked = on }

// Unheard reports that frames behind acked were written which nothing has told of.
func (s *Sender) Unheard(acked uint64) bool { return s.plain > acked }

// Fits reports whether a frame may go by the ring, into which its payload is copied,
// unless it is ZeroCopy's.
func (s *Sender) Fits(f *link.Frame) bool {
	return (!f.Gather || s.kind == ZeroCopy) && f.Head.Type == wire.Eager && s.kind.slotsOf(&f.Head) > 0
}

// headBytes is the size of the header of a frame with these flags. ZeroCopy's lies before
// the flag, and has to begin at a place that is known.
func (k Kind) headBytes(flags uint8) int {
	if k == ZeroCopy {
		return wire.SlotHeadMax
	}
	return wire.SlotHead(flags)
}

// slotsOf is how many slots a frame takes; 0: it does not fit.
func (k Kind) slotsOf(h *wire.Header) int { return k.slots(k.headBytes(h.Flags), int(h.Length)) }

// slots is how many slots a header of head bytes and n of payload take; 0: they do not fit.
func (k Kind) slots(head, n int) int {
	room := k.slotBytes() - wire.TailBytes
	if k != Pipeline {
		if n > room-head {
			return 0
		}
		return 1
	}
	count := (n + head + room - 1) / room
	if count > maxWrites-1 {
		return 0
	}
	return count
}

// Put puts a frame into the copy of the ring and returns the writes that carry
// it, in their order; none: there is no room. acked is the last frame that the
// peer has acknowledged.
func (s *Sender) Put(f *link.Frame, payload []byte, acked uint64) []Write {
	s.reclaim(acked)
	n := s.kind.slotsOf(&f.Head)
	if s.written-s.freed+uint64(n) > Slots {
		return nil
	}
	if s.looked {
		s.plain = f.Head.Seq
	}
	for i := range n {
		s.seqs[(s.written+uint64(i))%Slots] = f.Head.Seq
	}
	var w []Write
	switch s.kind {
	case Basic:
		w = s.putBasic(f, payload)
	case Pipeline:
		w = s.putPipelined(f, payload)
	case ZeroCopy:
		w = s.putGathered(f, payload)
	default:
		w = s.putWhole(f, payload)
	}
	s.written += uint64(n)
	s.underWay += len(w)
	return w
}

// reclaim frees the slots whose frames are acknowledged.
func (s *Sender) reclaim(acked uint64) {
	for s.freed < s.written && s.seqs[s.freed%Slots] <= acked {
		s.freed++
	}
	if s.kind == Basic && s.own != nil {
		s.reclaimBasic()
	}
}

// Ended is told of the end of a write. It reports whether the frames of the ring
// are to be sent again, by the connection: those that had arrived are known by
// their numbers.
func (s *Sender) Ended(err error) (again bool) {
	s.underWay--
	if err != nil {
		s.open = false
	}
	return err != nil
}

// lay writes a header and a part of a payload at the beginning of a slot, and
// the flag behind it.
func lay(slot []byte, h *wire.Header, part []byte, number uint64) (end int) {
	n := 0
	if h != nil {
		h.EncodeSlot((*[wire.SlotHeadMax]byte)(slot))
		n = wire.SlotHead(h.Flags)
	}
	n += copy(slot[n:], part)
	flag, end := tailOf(n)
	clear(slot[n:flag])
	binary.LittleEndian.PutUint64(slot[flag:], number)
	return end
}
