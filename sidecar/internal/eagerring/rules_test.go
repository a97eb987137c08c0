package eagerring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestSlots checks the slots of the channels (P§5.7), the frames that fit them, and the
// offers that are accepted.
func TestSlots(t *testing.T) {
	loose := link.Caps{Register: true, Write: true, Notify: true}
	for _, x := range []struct {
		kind         Kind
		name         string
		bytes        uint32
		head         int
		most, second int // bytes of a frame, and of the longest frame that takes one slot
		over         Kind
	}{
		{PiggyBack, "piggyback", 2 << 10, 48, 2<<10 - 56, 2<<10 - 56, PiggyBack},
		{Basic, "basic", 2 << 10, 48, 2<<10 - 56, 2<<10 - 56, PiggyBack},
		{Pipeline, "pipeline", 16 << 10, 48, 5*(16<<10-8) - 48, 16<<10 - 56, Pipeline},
		{ZeroCopy, "zerocopy", 16 << 10, 56, 16<<10 - 64, 16<<10 - 64, PiggyBack},
	} {
		if Named(x.name) != x.kind || x.kind.String() != x.name {
			t.Errorf("%v is %v by name", x.kind, Named(x.name))
		}
		e := newEnds(t, x.kind, whole)
		offer := e.from.Offer(link.Key{Key: 9, Addr: 5})
		if offer.SlotBytes != x.bytes || offer.Slots != Slots || offer.Key != 9 || offer.Addr != 5 {
			t.Errorf("%v: offers %+v", x.kind, offer)
		}
		if want := uint64(Slots*x.bytes + 64); x.kind.Bytes() != want {
			t.Errorf("%v: %d bytes, want %d", x.kind, x.kind.Bytes(), want)
		}
		for _, flags := range []uint8{0, wire.FlagColl, wire.FlagData, wire.FlagSync, wire.FlagReply} {
			more := 0 // bytes of the header
			if flags&^wire.FlagColl != 0 {
				more = 56 - x.head
			}
			for n, want := range map[int]int{0: 1, x.second: 1, x.most: (x.most + x.head + int(x.bytes) - 9) / (int(x.bytes) - 8), x.most + 1: 0} {
				h := wire.Header{Flags: flags, Length: uint32(max(n-more, 0))}
				if got := x.kind.slotsOf(&h); got != want {
					t.Errorf("%v, flags %d: %d bytes take %d slots, want %d", x.kind, flags, h.Length, got, want)
				}
			}
		}
		for _, c := range []link.Caps{loose, {InOrder: true}, {Ordered: true}} {
			if got := x.kind.over(c); got != x.over {
				t.Errorf("channel %v is %v over %+v", x.kind, got, c)
			}
		}
		if x.kind.over(whole) != x.kind {
			t.Errorf("%v is %v where writes are placed in order", x.kind, x.kind.over(whole))
		}
		for _, bad := range []wire.RingBody{{Slots: Slots - 1, SlotBytes: x.bytes}, {Slots: Slots, SlotBytes: x.bytes + 8}} {
			var s Sender
			if s.Open(x.kind, whole, &bad, 1, nil, nil) || s.IsOpen() {
				t.Errorf("%v: accepts an offer of %d slots of %d bytes", x.kind, bad.Slots, bad.SlotBytes)
			}
		}
	}
	if Named("unknown") != PiggyBack {
		t.Error("an unknown name is a channel")
	}
}

// TestFitting checks that only eager frames use a ring, and no frame that the link is to
// gather if the ring would copy it.
func TestFitting(t *testing.T) {
	for _, k := range kinds {
		e := newEnds(t, k, whole)
		f := frame(1, make([]byte, 100), false)
		if !e.to.Fits(f) {
			t.Errorf("%v: an eager frame does not fit", k)
		}
		if f.Gather = true; e.to.Fits(f) != (k == ZeroCopy) {
			t.Errorf("%v: a frame that is to be gathered fits: %v", k, e.to.Fits(f))
		}
		f.Gather, f.Head.Type = false, wire.Data
		if e.to.Fits(f) {
			t.Errorf("%v: a fragment fits", k)
		}
	}
}

// TestEmptiedIsChecked checks that the number of slots that a peer reports as emptied is
// used only if it is possible.
func TestEmptiedIsChecked(t *testing.T) {
	e := newEnds(t, Basic, whole)
	n := uint64(0)
	fill := func() (k int) {
		for len(e.to.Put(frame(n+1, nil, true), nil, 0)) > 0 {
			n++
			k++
		}
		return k
	}
	says := func(tail uint64) { binary.LittleEndian.PutUint64(e.own[Basic.tailAt():], tail) }
	if k := fill(); k != Slots {
		t.Fatalf("%d frames in an empty ring", k)
	}
	for _, tail := range []uint64{Slots + 1, 1<<64 - 1} {
		if says(tail); fill() != 0 {
			t.Errorf("there is room although of %d slots %d are reported as emptied", Slots, tail)
		}
	}
	if says(5); fill() != 5 {
		t.Error("there is no room after 5 slots are emptied")
	}
	if says(2); fill() != 0 {
		t.Error("there is room although fewer slots are reported as emptied than before")
	}
	if says(Slots + 5); fill() != Slots {
		t.Error("there is no room after all slots are emptied")
	}
	if e.to.InFlight() != 2*int(n) {
		t.Errorf("%d writes are in flight, of %d frames", e.to.InFlight(), n)
	}
	if w, ok := e.back.Emptied(7); !ok || w.Len != 8 || w.Slot >= 0 || e.back.InFlight() != 1 || e.back.Notification(w) != 0 {
		t.Errorf("Emptied returns %+v, %v, %d writes are in flight", w, ok, e.back.InFlight())
	}
	if e.back.Ended(link.ErrBroken); e.back.IsOpen() || e.back.InFlight() != 0 {
		t.Error("the ring is open after a failed write")
	}
	if _, ok := e.back.Emptied(8); ok {
		t.Error("a closed ring reports emptied slots")
	}
	if _, ok := newEnds(t, PiggyBack, whole).back.Emptied(1); ok {
		t.Error("piggyback reports emptied slots")
	}
}

// TestNotifications checks that a notification is for a slot of the open ring, or for one
// of an earlier ring, or breaks the protocol, and that successive rings have different
// ones.
func TestNotifications(t *testing.T) {
	loose := link.Caps{Register: true, Write: true, Notify: true}
	mem := make([]byte, PiggyBack.Bytes())
	var r Receiver
	r.Open(PiggyBack, loose, 3, mem)
	for _, x := range []struct {
		notice, rings uint64
		ok            bool
	}{
		{0, 3, false},
		{1, 3, true},
		{3*Slots + 1, 3, true},
		{4 * Slots, 3, true},
		{4*Slots + 1, 3, false},
		{4*Slots + 1, maxNotices, true},
		{4*Slots + 1, maxNotices - 1, true},
		{1<<64 - 1, 3, false},
		{0, maxNotices, false},
	} {
		if err := r.Notified(x.notice, x.rings); (err == nil) != x.ok || err != nil && !errors.Is(err, link.ErrProtocol) {
			t.Errorf("notice %d, of %d rings: %v", x.notice, x.rings, err)
		}
	}
	r.Open(PiggyBack, loose, 3, mem)
	for _, old := range []uint64{1, 3 * Slots, 4*Slots + 1} { // of other rings
		_ = r.Notified(old, 4)
		if r.Changed() {
			t.Errorf("the notification %d of another ring is used", old)
		}
	}
	if _ = r.Notified(3*Slots+2, 3); r.Changed() {
		t.Error("the notification of the second slot counts for the first")
	}
	if _ = r.Notified(3*Slots+1, 3); !r.Changed() {
		t.Error("the notification of the first slot is ignored")
	}
	r.Close()
	_ = r.Notified(1, 3)
	if r.IsOpen() || r.Changed() {
		t.Error("a closed ring has changed")
	}
	var s Sender
	r.Open(PiggyBack, loose, maxNotices+3, mem)
	offer := r.Offer(link.Key{})
	s.Open(PiggyBack, loose, &offer, 7, make([]byte, PiggyBack.Bytes()), nil)
	for i := range uint64(Slots) {
		w := s.Put(frame(i+1, nil, true), nil, 0)
		if n := s.Notification(w[0]); n != 3*Slots+1+i {
			t.Errorf("notice %d of slot %d", n, i)
		}
	}
	if s.Number() != 7 || s.Unnotified(0) {
		t.Errorf("ring %d, without notification: %v", s.Number(), s.Unnotified(0))
	}
	s.SetPeerPolls(true)
	if w := s.Put(frame(20, nil, true), nil, Slots); s.Notification(w[0]) != 0 || !s.Unnotified(19) || s.Unnotified(20) {
		t.Error("a polling peer gets a notification, or Unnotified is wrong")
	}
	if s.SetPeerPolls(false); !s.Unnotified(19) {
		t.Error("a frame written without a notification counts as notified")
	}
	if s.Refused(1); s.IsOpen() || s.InFlight() != Slots {
		t.Errorf("open %v, %d writes in flight", s.IsOpen(), s.InFlight())
	}
}

// TestForeignSlots checks that contents of a slot that no sender writes break the
// protocol, or are ignored, and that a frame before its turn waits.
func TestForeignSlots(t *testing.T) {
	for _, k := range kinds {
		for what, x := range map[string]struct {
			typ    wire.Type
			length uint32
			fails  bool
		}{
			"no frame":       {0, 8, true},
			"a fragment":     {wire.Data, 8, true},
			"longer than it": {wire.Eager, uint32(k.slotBytes()), k == ZeroCopy},
			"too long":       {wire.Eager, 6 * 16 << 10, k == Pipeline || k == ZeroCopy},
		} {
			e := newEnds(t, k, whole)
			payload := bytes.Repeat([]byte{1}, 8)
			for _, w := range e.to.Put(frame(1, payload, true), payload, 0) {
				copy(e.theirs[w.At:], e.bytesOf(w, payload))
			}
			at := 0
			if k == ZeroCopy {
				at = k.slotBytes() - 64
			}
			h := frame(1, payload, true).Head
			h.Type, h.Length = x.typ, x.length
			h.EncodeSlot((*[wire.SlotHeadMax]byte)(e.theirs[at:]))
			if k != ZeroCopy && int(x.length) > len(payload) {
				binary.LittleEndian.PutUint64(e.theirs[k.slotBytes()-8:], 1)
			}
			var f Frame
			ok, err := e.from.Next(1, &f)
			if long := k == Pipeline && what == "longer than it"; ok != long || (err != nil) != x.fails || err != nil && !errors.Is(err, link.ErrProtocol) {
				t.Errorf("%v: %s: accepted %v, %v", k, what, ok, err)
			}
		}
		e := newEnds(t, k, whole)
		for _, w := range e.to.Put(frame(1, nil, true), nil, 0) {
			copy(e.theirs[w.At:], e.bytesOf(w, nil))
			if w.Slot == 0 {
				at := int(w.At)
				e.theirs[at] ^= 0x40 // the header's version
			}
		}
		if _, ok, err := e.next(1); ok || !errors.Is(err, link.ErrProtocol) {
			t.Errorf("%v: a header of another version: accepted %v, %v", k, ok, err)
		}
		e = newEnds(t, k, whole)
		for _, w := range e.to.Put(frame(2, nil, true), nil, 0) {
			copy(e.theirs[w.At:], e.bytesOf(w, nil))
		}
		if _, ok, err := e.next(1); ok || err != nil || e.from.Taken() != 0 {
			t.Errorf("%v: the second frame before the first: %v, %v", k, ok, err)
		}
		if f, ok, err := e.next(2); !ok || err != nil || f.Head.Seq != 2 || !f.Whole || !f.Last {
			t.Errorf("%v: the second frame after the first: %+v, %v, %v", k, f, ok, err)
		}
		if e.from.Changed() && k != ZeroCopy {
			t.Errorf("%v: Changed is false", k)
		}
	}
}

// TestLap checks that all slots are used again as soon as their frames are acknowledged,
// and no sooner; that the longest frame that a slot takes is accepted; and that a reused
// slot is not read before its notification, or, with basic, before its head.
func TestLap(t *testing.T) {
	for _, k := range kinds {
		for _, c := range []link.Caps{whole, {Register: true, Write: true, Notify: true}} {
			e := newEnds(t, k, c)
			if k.over(c) != k {
				continue // of another channel
			}
			payload := bytes.Repeat([]byte{7}, k.slotBytes()-k.headBytes(0)-wire.TailBytes)
			for seq := uint64(1); seq <= 3*Slots; seq++ {
				acked := seq - Slots
				if seq <= Slots {
					acked = 0
				}
				if seq > Slots && len(e.to.Put(frame(seq, payload, false), payload, acked-1)) != 0 {
					t.Fatalf("%v: frame %d has room before frame %d is acknowledged", k, seq, acked)
				}
				writes := e.to.Put(frame(seq, payload, false), payload, acked)
				if len(writes) == 0 {
					t.Fatalf("%v: no room for frame %d once frame %d is acknowledged", k, seq, acked)
				}
				for i, w := range writes {
					if _, ok, err := e.next(seq); ok || err != nil {
						t.Fatalf("%v: frame %d is read before write %d: %v", k, seq, i, err)
					}
					copy(e.theirs[w.At:], e.bytesOf(w, payload))
					if !w.Payload && !bytes.Equal(e.to.Bytes(w), e.bytesOf(w, payload)) {
						t.Fatalf("%v: write %d of frame %d is of other bytes", k, i, seq)
					}
					if key := e.to.Key(w); key.Key != 9 || key.Addr != w.At {
						t.Fatalf("%v: write %d of frame %d goes to %+v", k, i, seq, key)
					}
				}
				if c.Notify {
					if _, ok, _ := e.next(seq); ok {
						t.Fatalf("%v: frame %d is read before its notification", k, seq)
					}
					if err := e.from.Notified(e.to.Notification(writes[0]), 1); err != nil {
						t.Fatal(err)
					}
				}
				f, ok, err := e.next(seq)
				if !ok || err != nil || f.Head.Seq != seq || !bytes.Equal(f.Payload, payload) {
					t.Fatalf("%v: frame %d: %v, %v, %d bytes of frame %d", k, seq, ok, err, len(f.Payload), f.Head.Seq)
				}
				if e.from.Changed() && k != ZeroCopy {
					t.Fatalf("%v: Changed is true after frame %d", k, seq)
				}
			}
		}
	}
}

// TestTailOfOthers checks that the other channels ignore the bytes where basic's peer
// reports emptied slots.
func TestTailOfOthers(t *testing.T) {
	e := newEnds(t, PiggyBack, whole)
	for i := range uint64(Slots) {
		e.to.Put(frame(i+1, nil, true), nil, 0)
	}
	binary.LittleEndian.PutUint64(e.own[PiggyBack.tailAt():], 5)
	if len(e.to.Put(frame(Slots+1, nil, true), nil, 0)) != 0 {
		t.Error("there is room although nothing is acknowledged")
	}
}

// TestWrites checks that a frame in one piece is one write, except for basic's head, and
// that zeros follow its payload, whatever was in the slot before.
func TestWrites(t *testing.T) {
	for _, k := range kinds {
		for _, x := range []struct {
			bytes  int
			inline bool
			gather int // separate writes of the payload
		}{{0, true, 0}, {0, false, 0}, {5, true, 0}, {5, false, 1}} {
			e := newEnds(t, k, whole)
			e.to.Open(k, whole, &wire.RingBody{Slots: Slots, SlotBytes: uint32(k.slotBytes())}, 1, bytes.Repeat([]byte{0xa5}, int(k.Bytes())), nil) // the peer has no ring
			want := 1
			if k == Basic {
				want++
			}
			if k == ZeroCopy {
				want += x.gather
			}
			w := e.to.Put(frame(1, make([]byte, x.bytes), x.inline), make([]byte, x.bytes), 0)
			if len(w) != want {
				t.Errorf("%v: %d bytes, inline %v: %d writes, want %d", k, x.bytes, x.inline, len(w), want)
			}
			if b := e.to.Bytes(w[0]); k != ZeroCopy && !bytes.Equal(b[wire.SlotHeadMin:len(b)-wire.TailBytes], make([]byte, (x.bytes+7)&^7)) {
				t.Errorf("%v: %d bytes are followed by %x", k, x.bytes, b[wire.SlotHeadMin+x.bytes:])
			}
		}
	}
}

// TestOldPayloadIsNoFlag checks that a frame is read only when all of it is in place, and
// not with its header, even if each word of the payload that was in its slot before
// equals the expected number.
func TestOldPayloadIsNoFlag(t *testing.T) {
	for _, k := range kinds {
		e := newEnds(t, k, whole)
		seq := uint64(0)
		send := func(payload []byte, part func(w Write, b []byte)) {
			seq++
			writes := e.to.Put(frame(seq, payload, false), payload, seq-1)
			if len(writes) == 0 {
				t.Fatalf("%v: no room for frame %d", k, seq)
			}
			for _, w := range writes {
				b := e.bytesOf(w, payload)
				if part != nil {
					part(w, b)
				}
				copy(e.theirs[w.At:], b)
				e.to.Ended(nil)
			}
			e.take(t, seq, payload)
		}
		for range Slots {
			payload := make([]byte, 640)
			for i := 0; i < len(payload); i += 8 {
				binary.LittleEndian.PutUint64(payload[i:], seq+1+Slots)
			}
			send(payload, nil)
		}
		for n := range Slots {
			send(bytes.Repeat([]byte{0xee}, 37*n), func(w Write, b []byte) {
				for i := 0; i+wire.TailBytes <= len(b); i++ { // a number is placed at once
					copy(e.theirs[w.At:], b[:i])
					if _, ok, err := e.next(seq); ok || err != nil {
						t.Fatalf("%v: frame %d is read with %d of %d bytes: %v", k, seq, i, len(b), err)
					}
				}
			})
		}
	}
}
