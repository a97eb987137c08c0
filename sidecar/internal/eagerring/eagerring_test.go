package eagerring

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

var kinds = []Kind{PiggyBack, Basic, Pipeline, ZeroCopy}

// ends is a ring with both of its sides, and the ring in the other direction for basic's
// tail.
type ends struct {
	to           Sender
	from         Receiver
	back         Sender // of the receiving side
	mine, theirs []byte // the copy from which writes are made; the ring itself
	got          []byte // the payload that was read last
	head         wire.Header
	own, copied  []byte // the ring in the other direction, and the copy from which the receiver writes it
}

var whole = link.Caps{Register: true, Write: true, InOrder: true, Ordered: true}

func newEnds(t testing.TB, k Kind, c link.Caps) *ends {
	t.Helper()
	e := &ends{mine: make([]byte, k.Bytes()), theirs: make([]byte, k.Bytes()), own: make([]byte, k.Bytes()), copied: make([]byte, k.Bytes())}
	e.from.Open(k, c, 1, e.theirs)
	offer := e.from.Offer(link.Key{Key: 9})
	if !e.to.Open(k, c, &offer, 1, e.mine, e.own) || !e.back.Open(k, c, &offer, 2, e.copied, nil) {
		t.Fatal("the offer is refused")
	}
	return e
}

func frame(seq uint64, payload []byte, inline bool) *link.Frame {
	f := &link.Frame{Head: wire.Header{Type: wire.Eager, Seq: seq, Tag: seq, Length: uint32(len(payload)), A: uint64(len(payload))}}
	if !inline {
		f.Payload = link.Ref{Region: 7, Len: uint64(len(payload))}
	}
	return f
}

// bytesOf returns the bytes of a write.
func (e *ends) bytesOf(w Write, payload []byte) []byte {
	if w.Payload {
		return payload[:w.Len]
	}
	return e.mine[w.At : w.At+w.Len]
}

// next returns the next part, if there is one.
func (e *ends) next(seq uint64) (f Frame, ok bool, err error) {
	changed := e.from.Changed()
	if ok, err = e.from.Next(seq, &f); ok && !changed {
		panic("Changed is false although there is a frame")
	}
	e.got = append(e.got[:0], f.Payload...)
	f.Payload = e.got
	e.from.Wipe()
	e.head = f.Head
	return f, ok, err
}

// take reads a frame that has arrived completely.
func (e *ends) take(t *testing.T, seq uint64, payload []byte) {
	t.Helper()
	var got []byte
	for {
		f, ok, err := e.next(seq)
		if !ok || err != nil {
			t.Fatalf("frame %d of %d bytes: no part after %d bytes: %v", seq, len(payload), len(got), err)
		}
		if f.Head.Seq != seq || f.Off != len(got) {
			t.Fatalf("frame %d at %d, want %d at %d", f.Head.Seq, f.Off, seq, len(got))
		}
		got = append(got, f.Payload...)
		if f.Last {
			break
		}
	}
	if !bytes.Equal(got, payload) {
		t.Fatalf("frame %d of %d bytes is not what was sent", seq, len(payload))
	}
	if w, ok := e.back.Emptied(e.from.Taken()); ok {
		copy(e.own[w.At:], e.copied[w.At:w.At+w.Len])
		e.back.Ended(nil)
	}
}

// TestFrames sends frames of all sizes that a channel accepts, many times around the
// ring.
func TestFrames(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(k)))
			e := newEnds(t, k, whole)
			seq := uint64(0)
			for range 4000 {
				payload := make([]byte, rng.IntN(100))
				if rng.IntN(3) == 0 {
					payload = make([]byte, rng.IntN(70<<10))
				}
				for i := range payload {
					payload[i] = byte(rng.Uint32())
				}
				if rng.IntN(4) == 0 {
					clear(payload)
				}
				if n := len(payload) / 8 * 8; rng.IntN(4) == 0 {
					for i := 0; i < n; i += 8 { // as if it were the number of a frame
						binary.LittleEndian.PutUint64(payload[i:], seq+1+uint64(rng.IntN(2*Slots)))
					}
				}
				f := frame(seq+1, payload, len(payload) <= link.InlineMax)
				if flags := uint8(1) << rng.IntN(8); flags&(wire.FlagSync|wire.FlagData|wire.FlagReply) != 0 {
					f.Head.Flags, f.Head.B = flags, rng.Uint64()
				}
				if !e.to.Fits(f) {
					continue
				}
				seq++
				writes := e.to.Put(f, payload, seq-1)
				if len(writes) == 0 {
					t.Fatalf("no room for frame %d of %d bytes in an empty ring", seq, len(payload))
				}
				for _, w := range writes {
					copy(e.theirs[w.At:], e.bytesOf(w, payload))
					if e.to.Ended(nil) {
						t.Fatal("frames must be sent again although no write has failed")
					}
				}
				if e.take(t, seq, payload); e.head != f.Head {
					t.Fatalf("a frame of %+v is of %+v", f.Head, e.head)
				}
			}
		})
	}
}

// TestPartsAreNotRead writes the bytes of a frame into the ring one by one, in the order
// that links promise: nothing must be read before the last byte.
func TestPartsAreNotRead(t *testing.T) {
	for _, k := range kinds {
		for i, n := range []int{0, 1, 64, 200, 1500, 40_000, 0, 1, 64, 200, 1500, 40_000} {
			payload := bytes.Repeat([]byte{0x5a}, n)
			f := frame(1, payload, n <= link.InlineMax)
			if i >= 6 {
				f.Head.Flags, f.Head.B = wire.FlagData, 1 // which may equal the number
			}
			e := newEnds(t, k, whole)
			if !e.to.Fits(f) {
				continue
			}
			// The contents of an earlier frame in the slots.
			for i := range e.theirs[:k.headAt()] {
				e.theirs[i] = 0xa5
			}
			writes := e.to.Put(f, payload, 0)
			got := 0
			for _, w := range writes {
				b := e.bytesOf(w, payload)
				for i := range b {
					// The head of Basic may be right before its last byte, which is zero.
					last := i == len(b)-1 || k == Basic && w.Slot < 0
					e.theirs[w.At+uint64(i)] = b[i]
					x, ok, err := e.next(1)
					if err != nil || ok && !last {
						t.Fatalf("%v: %d bytes: read after %d of %d bytes of a write: %v", k, n, i+1, len(b), err)
					}
					if ok {
						got += len(x.Payload)
					}
				}
			}
			if got != n || e.from.Taken() == 0 {
				t.Errorf("%v: %d of %d bytes were read", k, got, n)
			}
		}
	}
}

// TestRoom checks that a ring that is not emptied accepts as many frames as it has slots,
// and more when the frames are acknowledged, or emptied.
func TestRoom(t *testing.T) {
	for _, k := range kinds {
		e := newEnds(t, k, whole)
		n := uint64(0)
		for len(e.to.Put(frame(n+1, nil, true), nil, 0)) > 0 {
			n++
		}
		if n != Slots {
			t.Errorf("%v: %d frames in %d slots", k, n, Slots)
		}
		if len(e.to.Put(frame(n+1, nil, true), nil, 3)) == 0 {
			t.Errorf("%v: no room when frames are acknowledged", k)
		}
		if k != Basic {
			continue
		}
		w, _ := e.back.Emptied(7)
		copy(e.own[w.At:], e.copied[w.At:w.At+w.Len])
		for i := range 3 {
			if len(e.to.Put(frame(n+2, nil, true), nil, 0)) == 0 {
				t.Errorf("%v: no room for %d more when 7 slots are emptied", k, i+1)
			}
		}
	}
}

// TestKindOverLinks checks that channels that need order are replaced on links without
// it.
func TestKindOverLinks(t *testing.T) {
	for _, k := range kinds {
		loose := link.Caps{Register: true, Write: true, Notify: true}
		e := newEnds(t, k, loose)
		payload := []byte("hello")
		writes := e.to.Put(frame(1, payload, true), payload, 0)
		if len(writes) != 1 {
			t.Fatalf("%v: %d writes over a link without order", k, len(writes))
		}
		copy(e.theirs[writes[0].At:], e.bytesOf(writes[0], payload))
		if _, ok, _ := e.next(1); ok {
			t.Errorf("%v: a frame is read before its notification", k)
		}
		if err := e.from.Notified(e.to.Notification(writes[0]), 1); err != nil {
			t.Fatal(err)
		}
		e.take(t, 1, payload)
	}
}

func TestNoAllocation(t *testing.T) {
	for _, k := range kinds {
		e := newEnds(t, k, whole)
		payload := make([]byte, 500)
		f := frame(0, payload, false)
		seq := uint64(0)
		if n := testing.AllocsPerRun(100, func() {
			seq++
			f.Head.Seq = seq
			for _, w := range e.to.Put(f, payload, seq-1) {
				copy(e.theirs[w.At:], e.bytesOf(w, payload))
				e.to.Ended(nil)
			}
			if _, ok, err := e.next(seq); !ok || err != nil {
				t.Fatal(k, ok, err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations a frame", k, n)
		}
	}
}

// FuzzReceiver checks that whatever a peer writes, and whenever, each frame that is read
// is in the ring and valid, and is read once.
func FuzzReceiver(f *testing.F) {
	for _, k := range kinds {
		e := newEnds(f, k, whole)
		payload := bytes.Repeat([]byte{1}, 1000)
		for _, w := range e.to.Put(frame(1, payload, false), payload, 0) {
			f.Add(uint8(k), uint32(w.At), e.bytesOf(w, payload))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, at uint32, raw []byte) {
		k := Kind(kind % 4)
		e := newEnds(t, k, whole)
		payload := bytes.Repeat([]byte{1}, 1000)
		for _, w := range e.to.Put(frame(1, payload, false), payload, 0) {
			copy(e.theirs[w.At:], e.bytesOf(w, payload))
		}
		copy(e.theirs[int(at)%len(e.theirs):], raw)
		for seq := uint64(1); ; {
			x, ok, err := e.next(seq)
			if err != nil || !ok {
				return
			}
			if x.Off+len(x.Payload) > int(x.Head.Length) || x.Head.Type != wire.Eager || e.from.Taken() > Slots {
				t.Fatal(fmt.Sprintf("%+v", x.Head), x.Off, len(x.Payload), e.from.Taken())
			}
			if x.Last {
				seq = max(seq, x.Head.Seq) + 1
			}
		}
	})
}
