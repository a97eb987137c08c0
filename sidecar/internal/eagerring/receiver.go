package eagerring

import (
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Receiver is the ring that a peer writes to. Every byte of it is a stranger's
// and may change while we look: a header is copied once and judged then.
type Receiver struct {
	kind    Kind
	ordered bool // the flag tells by itself that a slot is filled; else the link's notice
	open    bool
	mem     []byte // the ring
	first   uint32 // notice of the first slot
	taken   uint64 // slots emptied
	notices [Slots]bool
	used    []byte      // of the slot that was taken last, and is still to be wiped
	partial bool        // the rest of a pipelined frame is still to come
	head    wire.Header // of it
	got     int         // bytes of it that have come
}

// maxNotices bounds the rings that have notices of their own before the first
// ones are used again.
const maxNotices = 1 << 24

// Open begins a fresh ring of the given number in mem.
func (r *Receiver) Open(k Kind, c link.Caps, number uint64, mem []byte) {
	*r = Receiver{mem: mem, kind: k.over(c), ordered: c.InOrder, open: true, first: uint32(number%maxNotices*Slots + 1)}
}

// IsOpen reports that the peer may write.
func (r *Receiver) IsOpen() bool { return r.open }

// Ordered reports that a look at the ring tells what has come, without a notice.
func (r *Receiver) Ordered() bool { return r.ordered }

// Close forgets the ring.
func (r *Receiver) Close() { *r = Receiver{} }

// Offer is what the peer is told of the ring under key.
func (r *Receiver) Offer(key link.Key) wire.RingBody {
	return wire.RingBody{Key: key.Key, Addr: key.Addr, Slots: Slots, SlotBytes: uint32(r.kind.slotBytes()), Notice: r.first}
}

// Taken is how many slots have been emptied.
func (r *Receiver) Taken() uint64 { return r.taken }

// Notice is told that a write is complete. Those of the rings of lost connections
// come late, too, and mean nothing any more; rings is the highest number so far.
func (r *Receiver) Notice(notice, rings uint64) error {
	if notice == 0 || notice > rings*Slots+Slots && rings < maxNotices {
		return fmt.Errorf("%w: notice %d of no ring", link.ErrProtocol, notice)
	}
	if slot := notice - uint64(r.first); r.open && slot < Slots {
		r.notices[slot] = true
	}
	return nil
}

// Frame is what Next has found: a frame, or a part of one.
type Frame struct {
	Head    wire.Header
	Payload []byte // of the slot
	Off     int    // where it belongs in the frame's payload
	Whole   bool   // this is all of it
	Last    bool   // nothing more of it comes
}

// seqAt is the place of the number in a frame's header (P§3.1).
const seqAt = 8

// Changed reports, by one look, that the next frame may have come: most often it has not,
// in turn after turn. Then its slot is empty, and no frame in a ring has the number 0.
func (r *Receiver) Changed() bool {
	slot := r.taken % Slots
	if r.kind == ZeroCopy || !r.ordered || r.partial {
		return r.open && (r.ordered || r.notices[slot])
	}
	return r.open && binary.LittleEndian.Uint64(r.mem[r.kind.slotOf(slot)+seqAt:]) != 0
}

// Next takes the next part of a frame out, if it is there and its turn has come:
// next is the number of the frame that may be taken. The payload is the ring's
// memory, until Wipe. f is the caller's, since most often there is nothing; what it is
// then means nothing.
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
		return false, nil // it is not the one whose flag was there
	}
	if err := f.Head.DecodeSlot(&head); err != nil {
		return false, fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	n, from := int(f.Head.Length), r.kind.headBytes(f.Head.Flags)
	switch {
	case r.kind.slots(from, n) == 0:
		return false, fmt.Errorf("%w: %v of %d bytes in a ring", link.ErrProtocol, f.Head.Type, n)
	case f.Head.Seq > next:
		return false, nil // frames before it are under way
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

// nextPart takes the next slot of a pipelined frame.
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

// use notes that a slot is taken with what is in its first n bytes. Where the flag is always
// at the same place, or it is the link that tells of a write, nothing needs to be wiped.
func (r *Receiver) use(slot []byte, n int) {
	if _, end := tailOf(n); r.ordered && r.kind != ZeroCopy {
		r.used = slot[:end]
	}
}

// Wipe is to be called when the payload that Next found was copied, and before the peer
// hears that its slot is empty. A flag lies behind its frame, where a longer frame had its
// payload before: a word of that may be the very number that is waited for, while no more
// of the next frame is in place than its header.
func (r *Receiver) Wipe() {
	clear(r.used)
	r.used = nil
}

func (r *Receiver) advance() {
	r.notices[r.taken%Slots] = false
	r.taken++
}

// filled is the next slot, if the link or the head says that it is filled; else nil.
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

// flagged reports that the flag behind n bytes is that of the next slot.
func (r *Receiver) flagged(slot []byte, n int) bool {
	flag, end := tailOf(n)
	return end <= len(slot) && binary.LittleEndian.Uint64(slot[flag:]) == r.taken+1
}

// headAt is where in a slot the header is, once its flag says that it is whole, else -1; and
// the header's first word, which says where the flag is.
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
			return -1, 0 // half a header, or one of nobody: its flag cannot come
		}
		n = room
	}
	if !r.flagged(slot, from+n) {
		return -1, 0
	}
	return 0, first
}

// payloadOf is the payload of a frame of n bytes, which lies behind a header of from
// bytes, or what this slot has of it; false: the header has changed meanwhile.
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
