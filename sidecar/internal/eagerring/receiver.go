package eagerring

import (
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Receiver is the ring to which a peer writes. No byte of it can be trusted, and each may
// change at any time: a header is copied once, and the copy is checked.
type Receiver struct {
	kind    Kind
	ordered bool // the flag shows by itself that a slot is filled; otherwise the link's notification does
	open    bool
	mem     []byte // the ring
	first   uint32 // notification of the first slot
	taken   uint64 // number of slots emptied
	notices [Slots]bool
	used    []byte      // of the slot that was emptied last, not wiped yet
	partial bool        // the rest of a pipelined frame is missing
	head    wire.Header // header of that frame
	got     int         // bytes of that frame that have arrived
}

// maxNotices is the number of rings with notifications of their own, before the first
// ones are used again.
const maxNotices = 1 << 24

// Open begins a new ring of the given number in mem.
func (r *Receiver) Open(k Kind, c link.Caps, number uint64, mem []byte) {
	*r = Receiver{mem: mem, kind: k.over(c), ordered: c.InOrder, open: true, first: uint32(number%maxNotices*Slots + 1)}
}

// IsOpen reports whether the peer may write.
func (r *Receiver) IsOpen() bool { return r.open }

// Ordered reports whether polling the ring finds frames, without a notification.
func (r *Receiver) Ordered() bool { return r.ordered }

// Close releases the ring.
func (r *Receiver) Close() { *r = Receiver{} }

// Offer returns the description of the ring for the peer, under key.
func (r *Receiver) Offer(key link.Key) wire.RingBody {
	return wire.RingBody{Key: key.Key, Addr: key.Addr, Slots: Slots, SlotBytes: uint32(r.kind.slotBytes()), Notice: r.first}
}

// Taken returns how many slots have been emptied.
func (r *Receiver) Taken() uint64 { return r.taken }

// Notified records the notification of a write. Notifications for the rings of lost
// connections may arrive late, and are ignored; rings is the highest number so far.
func (r *Receiver) Notified(notice, rings uint64) error {
	if notice == 0 || notice > rings*Slots+Slots && rings < maxNotices {
		return fmt.Errorf("%w: notice %d of no ring", link.ErrProtocol, notice)
	}
	if slot := notice - uint64(r.first); r.open && slot < Slots {
		r.notices[slot] = true
	}
	return nil
}

// Frame is the result of Next: a frame, or a part of one.
type Frame struct {
	Head    wire.Header
	Payload []byte // payload of the slot
	Off     int    // offset in the frame's payload
	Whole   bool   // it is the whole payload
	Last    bool   // it is the last part
}

// seqAt is the offset of the number in a frame's header (P§3.1).
const seqAt = 8

// Changed reports, by one load, whether the next frame may have arrived: in most turns it
// has not. Then its slot is empty, and no frame in a ring has the number 0.
func (r *Receiver) Changed() bool {
	slot := r.taken % Slots
	if r.kind == ZeroCopy || !r.ordered || r.partial {
		return r.open && (r.ordered || r.notices[slot])
	}
	return r.open && binary.LittleEndian.Uint64(r.mem[r.kind.slotOf(slot)+seqAt:]) != 0
}

// Next removes the next part of a frame, if it has arrived and its turn has come: next is
// the highest number of a frame that may be handled. The payload is in the ring's memory,
// until Wipe. The caller supplies f, because in most calls there is no frame; f is
// undefined then.
func (r *Receiver) Next(next uint64, f *Frame) (ok bool, err error) {
	slot := r.filled()
	if slot == nil {
		return false, nil
	}
	if r.partial {
		return r.nextPart(slot, f), nil
	}
	at, first := r.headAt(slot)
	if at < 0 {
		return false, nil
	}
	head := [wire.SlotHeadMax]byte(slot[at:])
	if binary.LittleEndian.Uint64(head[:]) != first {
		return false, nil // the header has changed since its flag was checked
	}
	if err := f.Head.DecodeSlot(&head); err != nil {
		return false, fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	n, from := int(f.Head.Length), r.kind.headBytes(f.Head.Flags)
	switch {
	case r.kind.slots(from, n) == 0:
		return false, fmt.Errorf("%w: %v of %d bytes in a ring", link.ErrProtocol, f.Head.Type, n)
	case f.Head.Seq > next:
		return false, nil // frames before it are in flight on the connection
	}
	if f.Payload, ok = r.payloadOf(slot, from, n); !ok {
		return false, nil
	}
	r.use(slot, from+len(f.Payload))
	f.Off, f.Whole, f.Last = 0, true, true
	if len(f.Payload) < n {
		f.Whole, f.Last = false, false
		r.partial, r.head, r.got = true, f.Head, len(f.Payload)
	}
	r.advance()
	return true, nil
}

// nextPart removes the next slot of a pipelined frame.
func (r *Receiver) nextPart(slot []byte, f *Frame) bool {
	n := min(int(r.head.Length)-r.got, r.kind.slotBytes()-wire.TailBytes)
	if !r.flagged(slot, n) {
		return false
	}
	r.use(slot, n)
	*f = Frame{Head: r.head, Payload: slot[:n], Off: r.got}
	r.got += n
	f.Last = r.got == int(r.head.Length)
	r.partial = !f.Last
	r.advance()
	return true
}

// use records that a slot is emptied and that its first n bytes are used. If the flag
// always has the same offset, or if the link notifies, nothing needs to be wiped.
func (r *Receiver) use(slot []byte, n int) {
	if _, end := tailOf(n); r.ordered && r.kind != ZeroCopy {
		r.used = slot[:end]
	}
}

// Wipe must be called when the payload that Next returned was copied, and before the peer
// learns that its slot is empty. A flag is behind its frame, where a longer frame had
// payload before: a word of that payload may equal the expected number while only the
// header of the next frame is in place.
func (r *Receiver) Wipe() {
	clear(r.used)
	r.used = nil
}

func (r *Receiver) advance() {
	r.notices[r.taken%Slots] = false
	r.taken++
}

// filled returns the next slot if the link or the head says that it is filled, and nil
// otherwise.
func (r *Receiver) filled() []byte {
	if !r.open || !r.ordered && !r.notices[r.taken%Slots] {
		return nil
	}
	if r.kind == Basic && binary.LittleEndian.Uint64(r.mem[r.kind.headAt():]) <= r.taken {
		return nil
	}
	at := r.kind.slotOf(r.taken)
	return r.mem[at : at+r.kind.slotBytes()]
}

// flagged reports whether the flag behind n bytes is that of the next slot.
func (r *Receiver) flagged(slot []byte, n int) bool {
	flag, end := tailOf(n)
	return end <= len(slot) && binary.LittleEndian.Uint64(slot[flag:]) == r.taken+1
}

// headAt returns the offset of the header in a slot, if its flag says that it is whole,
// or -1; and the header's first word, which determines the flag's offset.
func (r *Receiver) headAt(slot []byte) (at int, first uint64) {
	if r.kind == ZeroCopy {
		tail := len(slot) - wire.TailBytes
		if binary.LittleEndian.Uint64(slot[tail:]) != r.taken+1 {
			return -1, 0
		}
		at = tail - wire.SlotHeadMax
		return at, binary.LittleEndian.Uint64(slot[at:])
	}
	if first = binary.LittleEndian.Uint64(slot); first == 0 {
		return -1, 0
	}
	n, from := int(first>>32), wire.SlotHead(uint8(first>>16))
	room := len(slot) - from - wire.TailBytes
	if n > room {
		if r.kind != Pipeline {
			return -1, 0 // half a header, or an invalid one: its flag cannot exist
		}
		n = room
	}
	if !r.flagged(slot, from+n) {
		return -1, 0
	}
	return 0, first
}

// payloadOf returns the payload of a frame of n bytes, behind a header of from bytes, or
// the part in this slot; false: the header has changed meanwhile.
func (r *Receiver) payloadOf(slot []byte, from, n int) ([]byte, bool) {
	if r.kind == ZeroCopy {
		at := len(slot) - wire.TailBytes - from
		return slot[at-n : at], true
	}
	n = min(n, len(slot)-from-wire.TailBytes)
	if !r.flagged(slot, from+n) {
		return nil, false
	}
	return slot[from : from+n], true
}
