package eagerring

import (
	"encoding/binary"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Sender is a peer's ring, to which this side writes.
type Sender struct {
	kind       Kind
	offer      wire.RingBody
	number     uint64 // number of the ring: writes to earlier rings may end late
	open       bool
	copied     []byte // copy of the ring, from which writes are made
	own        []byte // the ring to which the peer writes; nil: none
	written    uint64 // number of slots filled
	freed      uint64 // number of slots freed
	inFlight   int    // writes that have not ended
	peerPolls  bool   // the peer polls the ring
	unnotified uint64 // number of the last frame that was written without a notification
	seqs       [Slots]uint64
	writes     [maxWrites]Write
}

// Open accepts a peer's offer as ring number; copied is the copy from which it is
// written. own is the ring to which the peer writes, where it also reports emptied slots
// of this one; nil: there is none. It returns false if the offer's slots are not those of
// this channel.
func (s *Sender) Open(k Kind, c link.Caps, offer *wire.RingBody, number uint64, copied, own []byte) bool {
	k = k.over(c)
	if offer.Slots != Slots || int(offer.SlotBytes) != k.slotBytes() {
		return false
	}
	*s = Sender{kind: k, offer: *offer, number: number, open: true, copied: copied, own: own}
	return true
}

// IsOpen reports whether frames may use the ring.
func (s *Sender) IsOpen() bool { return s.open }

// Number returns the ring's number.
func (s *Sender) Number() uint64 { return s.number }

// InFlight returns how many writes have not ended. Frames and writes may overtake each
// other: a frame of the connection waits until there are none.
func (s *Sender) InFlight() int { return s.inFlight }

// Refused closes the ring, since the link has refused the last n writes. Writes in flight
// still end.
func (s *Sender) Refused(n int) { s.open, s.inFlight = false, s.inFlight-n }

// Key returns the destination of a write.
func (s *Sender) Key(w Write) link.Key { return link.Key{Key: s.offer.Key, Addr: s.offer.Addr + w.At} }

// Bytes returns the bytes of a write that is not a frame's payload.
func (s *Sender) Bytes(w Write) []byte { return s.copied[w.At : w.At+w.Len] }

// Notification returns the notification of a write, on links that notify; 0: none is needed.
func (s *Sender) Notification(w Write) uint64 {
	if w.Slot < 0 || s.peerPolls {
		return 0
	}
	return uint64(s.offer.Notice) + uint64(w.Slot)
}

// SetPeerPolls records whether the peer polls its ring, so that writes need no
// notification.
func (s *Sender) SetPeerPolls(on bool) { s.peerPolls = on }

// Unnotified reports whether frames after acked were written without a notification.
func (s *Sender) Unnotified(acked uint64) bool { return s.unnotified > acked }

// Fits reports whether a frame may use the ring. Its payload is copied into the ring,
// except by ZeroCopy.
func (s *Sender) Fits(f *link.Frame) bool {
	return (!f.Gather || s.kind == ZeroCopy) && f.Head.Type == wire.Eager && s.kind.slotsOf(&f.Head) > 0
}

// headBytes returns the size of the header of a frame with these flags. ZeroCopy's header
// precedes the flag, and must begin at a fixed offset.
func (k Kind) headBytes(flags uint8) int {
	if k == ZeroCopy {
		return wire.SlotHeadMax
	}
	return wire.SlotHead(flags)
}

// slotsOf returns how many slots a frame takes; 0: it does not fit.
func (k Kind) slotsOf(h *wire.Header) int { return k.slots(k.headBytes(h.Flags), int(h.Length)) }

// slots returns how many slots a header of head bytes and n bytes of payload take; 0:
// they do not fit.
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

// Put writes a frame into the copy of the ring and returns the writes that carry it, in
// order, or none if there is no room. acked is the last frame that the peer has
// acknowledged.
func (s *Sender) Put(f *link.Frame, payload []byte, acked uint64) []Write {
	s.reclaim(acked)
	n := s.kind.slotsOf(&f.Head)
	if s.written-s.freed+uint64(n) > Slots {
		return nil
	}
	if s.peerPolls {
		s.unnotified = f.Head.Seq
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
	s.inFlight += len(w)
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

// Ended records the end of a write. It reports whether the connection must send the
// frames of the ring again: the peer drops those that had arrived by their numbers.
func (s *Sender) Ended(err error) (again bool) {
	s.inFlight--
	if err != nil {
		s.open = false
	}
	return err != nil
}

// lay writes a header and a part of a payload at the beginning of a slot, followed by the
// flag.
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
