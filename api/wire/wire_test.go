package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/api/golden"
)

// sample has a different value in every field (PROTOCOL §3.1).
var sample = Header{
	Type: Data, Flags: FlagAckNow, Length: 0x43210, Seq: 0x0807060504030201, Ack: 9, Credit: 0x11223344, Context: 7,
	Src: 3, Dst: 4, Tag: 0xbb000000000000aa, A: 0x0000000200000001, B: 5,
}

func TestGoldenHeader(t *testing.T) {
	var b [HeaderBytes]byte
	sample.Encode(&b)
	golden.Compare(t, "header", b[:])
	var got Header
	if err := got.Decode(&b); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample, got); d != "" {
		t.Fatal(d)
	}
}

// TestGoldenSlot checks a header in a slot, with B and without (PROTOCOL §5.7).
func TestGoldenSlot(t *testing.T) {
	h := sample
	h.Type, h.Flags, h.A = Eager, FlagColl|FlagData, uint64(h.Length)
	var b [SlotHeadMax]byte
	h.EncodeSlot(&b)
	golden.Compare(t, "slot", b[:])
	var got Header
	if err := got.DecodeSlot(&b); err != nil || got != h {
		t.Errorf("%+v became %+v: %v", h, got, err)
	}
	for flags := range 256 {
		b[2] = byte(flags)
		h.Flags, h.B = byte(flags), sample.B
		want := SlotHeadMax
		if h.Flags&(FlagSync|FlagData|FlagReply) == 0 {
			h.B, want = 0, SlotHeadMin // the bytes there belong to the payload
		}
		if n := SlotHead(h.Flags); n != want {
			t.Errorf("flags %#x: a header of %d bytes, want %d", flags, n, want)
		}
		if err := got.DecodeSlot(&b); h.Flags&^flagsAll != 0 {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("flags %#x: %v", flags, err)
			}
		} else if err != nil || got != h {
			t.Errorf("%+v became %+v: %v", h, got, err)
		}
	}
	for i, bad := range map[int]byte{0: Version + 1, 1: byte(Data), 3: 2 * (ElemMax + 1), 7: 0x80} {
		b[2] = 0
		was := b[i]
		b[i] = bad
		if err := got.DecodeSlot(&b); !errors.Is(err, ErrMalformed) {
			t.Errorf("byte %d is %d: %v", i, bad, err)
		}
		b[i] = was
	}
}

// TestElem checks that only messages have a type of elements, and only types of the
// list (LAYOUT §7).
func TestElem(t *testing.T) {
	for typ := range typeMax + 1 {
		for elem := range 128 {
			h := sample
			h.Type, h.Elem, h.Length = typ, uint8(elem), 0
			if typ == Ack || typ == Heartbeat || typ == Ring || typ == Look {
				h.Seq = 0
			}
			var b [HeaderBytes]byte
			h.Encode(&b)
			var got Header
			err := got.Decode(&b)
			if may := typ > 0 && (elem == 0 || elem <= ElemMax && (typ == Eager || typ == RTS)); may && (err != nil || got != h) || !may && !errors.Is(err, ErrMalformed) {
				t.Errorf("%v with elements of type %d: %v", typ, elem, err)
			}
		}
	}
}

func TestGoldenBodies(t *testing.T) {
	rts := RTSBody{Key: 0x0102030405060708, Addr: 0x1112131415161718, Last: 0xfe, About: 0x313233, Data: 0x21222324}
	b := make([]byte, RTSBytes)
	if n := rts.Encode(b); n != RTSBytes {
		t.Errorf("an RTS body of %d bytes", n)
	}
	golden.Compare(t, "rts", b)
	var gotRTS RTSBody
	if err := gotRTS.Decode(b); err != nil || gotRTS != rts {
		t.Errorf("%+v became %+v: %v", rts, gotRTS, err)
	}
	pull := PullBody{Offset: 0x0102030405060708, Bytes: 0x1112131415161718, Key: 0x2122232425262728, Addr: 0x3132333435363738}
	b = make([]byte, PullBytes)
	if n := pull.Encode(b); n != PullBytes {
		t.Errorf("a Pull body of %d bytes", n)
	}
	golden.Compare(t, "pull", b)
	var gotPull PullBody
	if err := gotPull.Decode(b); err != nil || gotPull != pull {
		t.Errorf("%+v became %+v: %v", pull, gotPull, err)
	}
	ready := ReadyBody{Key: 0x0102030405060708, Addr: 0x1112131415161718, Seq: 0x2122232425262728, Guard: 0x31, Poll: true}
	b = make([]byte, ReadyBytes)
	if n := ready.Encode(b); n != ReadyBytes {
		t.Errorf("a Ready body of %d bytes", n)
	}
	golden.Compare(t, "ready", b)
	var gotReady ReadyBody
	if err := gotReady.Decode(b); err != nil || gotReady != ready {
		t.Errorf("%+v became %+v: %v", ready, gotReady, err)
	}
	b[25] = 2
	if err := gotReady.Decode(b); !errors.Is(err, ErrMalformed) {
		t.Error("flags that mean nothing:", err)
	}
	ring := RingBody{Key: 0x0102030405060708, Addr: 0x1112131415161718, Slots: 0x21222324, SlotBytes: 0x31323340, Notice: 0x41424344}
	b = make([]byte, RingBytes)
	if n := ring.Encode(b); n != RingBytes {
		t.Errorf("a Ring body of %d bytes", n)
	}
	golden.Compare(t, "ring", b)
	var gotRing RingBody
	if err := gotRing.Decode(b); err != nil || gotRing != ring {
		t.Errorf("%+v became %+v: %v", ring, gotRing, err)
	}
}

func TestGoldenExposed(t *testing.T) {
	x := ExposedBody{Key: 0x0102030405060708, Addr: 0x1112131415161718, Len: 0x2122232425262728}
	b := make([]byte, ExposedBytes)
	if n := x.Encode(b); n != ExposedBytes {
		t.Errorf("an Exposed body of %d bytes", n)
	}
	golden.Compare(t, "exposed", b)
	var got ExposedBody
	if err := got.Decode(b); err != nil || got != x {
		t.Errorf("%+v became %+v: %v", x, got, err)
	}
	x.Addr = ^uint64(8)
	x.Encode(b)
	if err := got.Decode(b); !errors.Is(err, ErrMalformed) {
		t.Error("a window beyond the end of memory:", err)
	}
	if err := got.Decode(b[:8]); !errors.Is(err, ErrMalformed) {
		t.Error("half a body:", err)
	}
}

// TestInvalidRings checks that offers of impossible rings are errors.
func TestInvalidRings(t *testing.T) {
	for _, ring := range []RingBody{
		{Slots: 16, SlotBytes: 2048, Notice: 1},
		{Key: 1, SlotBytes: 2048, Notice: 1},
		{Key: 1, Slots: 16, Notice: 1},
		{Key: 1, Slots: 16, Notice: 1, SlotBytes: SlotHeadMax},
		{Key: 1, Slots: 16, SlotBytes: 2000, Notice: 1},
		{Key: 1, Slots: 16, SlotBytes: 2048},
		{Key: 1, Slots: 16, SlotBytes: 2048, Notice: ^uint32(15)},
	} {
		b := make([]byte, RingBytes)
		ring.Encode(b)
		var got RingBody
		if err := got.Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%+v: %v", ring, err)
		}
	}
}

// TestMalformed checks that each malformed header is refused with the right reason.
func TestMalformed(t *testing.T) {
	for what, spoil := range map[string]func(b *[HeaderBytes]byte){
		"version 3":                                    func(b *[HeaderBytes]byte) { b[0] = Version + 1 },
		"type(0)":                                      func(b *[HeaderBytes]byte) { b[1] = 0 },
		"data with flags 0x80":                         func(b *[HeaderBytes]byte) { b[2] = 0x80 },
		"ack with a payload of 274960 bytes":           func(b *[HeaderBytes]byte) { b[1] = byte(Ack) },
		"fin with a payload of 274960 bytes":           func(b *[HeaderBytes]byte) { b[1] = byte(Fin) },
		"left with a payload of 274960 bytes":          func(b *[HeaderBytes]byte) { b[1] = byte(Left) },
		"withdrawn with a payload of 274960 bytes":     func(b *[HeaderBytes]byte) { b[1] = byte(Withdrawn) },
		"type(43)":                                     func(b *[HeaderBytes]byte) { b[1] = 43 },
		"data with flags 0x8":                          func(b *[HeaderBytes]byte) { b[2] = 8 },
		"data":                                         func(b *[HeaderBytes]byte) { b[3] = 1 },
		"payload of 1048577 bytes":                     func(b *[HeaderBytes]byte) { b[4], b[5], b[6], b[7] = 1, 0, 0x10, 0 },
		"data with sequence number 0":                  func(b *[HeaderBytes]byte) { clear(b[8:16]) },
		"ack with sequence number 578437695752307201":  func(b *[HeaderBytes]byte) { b[1] = byte(Ack); clear(b[4:8]) },
		"ring with sequence number 578437695752307201": func(b *[HeaderBytes]byte) { b[1] = byte(Ring) },
		"look with sequence number 578437695752307201": func(b *[HeaderBytes]byte) { b[1] = byte(Look); clear(b[4:8]) },
	} {
		var b [HeaderBytes]byte
		sample.Encode(&b)
		spoil(&b)
		var h Header
		if err := h.Decode(&b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzBodies checks that a payload of any length is refused, or has the same meaning
// after it is encoded again.
func FuzzBodies(f *testing.F) {
	f.Add(make([]byte, RTSBytes))
	f.Add(make([]byte, PullBytes))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r, r2 RTSBody
		if err := r.Decode(raw); err == nil {
			b := make([]byte, RTSBytes)
			if r.Encode(b); r2.Decode(b) != nil || r2 != r {
				t.Fatalf("%+v became %+v", r, r2)
			}
		} else if !errors.Is(err, ErrMalformed) || len(raw) == RTSBytes {
			t.Fatal(err)
		}
		var p, p2 PullBody
		if err := p.Decode(raw); err == nil {
			b := make([]byte, PullBytes)
			if p.Encode(b); p2.Decode(b) != nil || p2 != p {
				t.Fatalf("%+v became %+v", p, p2)
			}
		} else if !errors.Is(err, ErrMalformed) || len(raw) == PullBytes {
			t.Fatal(err)
		}
	})
}

// FuzzHeader checks that any 64 bytes are refused as malformed, or have the same meaning
// after they are encoded again.
func FuzzHeader(f *testing.F) {
	var b [HeaderBytes]byte
	sample.Encode(&b)
	f.Add(b[:])
	f.Add(make([]byte, HeaderBytes))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) < HeaderBytes {
			return
		}
		var h, again Header
		if err := h.Decode((*[HeaderBytes]byte)(raw)); err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v does not wrap ErrMalformed", err)
			}
			return
		}
		var b [HeaderBytes]byte
		h.Encode(&b)
		if err := again.Decode(&b); err != nil || again != h {
			t.Fatalf("%+v became %+v: %v", h, again, err)
		}
	})
}
