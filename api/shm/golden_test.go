package shm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/api/golden"
)

func TestGoldenDescriptors(t *testing.T) {
	send := Descriptor{Op: OpSend, Flags: FlagSync, Class: ClassArena, Req: 7, Peer: 3, Context: 5, Tag: 0x1122334455667788}
	send.SetBody(0x10000, 1<<16, 0xa1a2a3a4a5a6a7a8, 0xb1b2b3b4b5b6b7b8)
	done := Descriptor{Op: OpDone, Req: MaxRequests - 1, Peer: 2, Status: StatusTruncated, Tag: 9}
	done.SetInline([]byte("hello"))
	for name, d := range map[string]Descriptor{"descriptor-send": send, "descriptor-inline": done} {
		b := [DescriptorBytes]byte{0xee, 0xee, 0xee, 0xee}
		d.Encode(&b)
		golden.Compare(t, name, b[:])
		var got Descriptor
		got.Decode(&b)
		if diff := cmp.Diff(d, got); diff != "" {
			t.Errorf("%s: decoded (-want +got):\n%s", name, diff)
		}
	}
	if send.Addr() != 0x10000 || send.Len() != 1<<16 || send.Aux() != 0xa1a2a3a4a5a6a7a8 || send.Aux2() != 0xb1b2b3b4b5b6b7b8 {
		t.Errorf("the four words: %#x %#x %#x %#x", send.Addr(), send.Len(), send.Aux(), send.Aux2())
	}
	if string(done.Inline()) != "hello" {
		t.Errorf("inline payload %q", done.Inline())
	}
}

func TestGoldenHandshake(t *testing.T) {
	h := Hello{ABI: ABIVersion, Features: FeaturesAll, Rank: 7, ArenaBytes: 1 << 40}
	golden.Compare(t, "hello", h.Encode())
	if got, err := DecodeHello(golden.Read(t, "hello")); err != nil || got != h {
		t.Errorf("%+v became %+v: %v", h, got, err)
	}
	for name, w := range map[string]Welcome{
		"welcome": {
			ABI: ABIVersion, Features: FeaturesAll, Accepted: true, Rank: 7, Ranks: 16, Pod: 1, Pods: 4,
			SegmentBytes: 0x416000, ArenaBytes: 1 << 40, EagerBytes: 8192,
		},
		"refusal": {ABI: ABIVersion, Features: FeaturesAll, Text: "rank 7 is attached already"},
	} {
		golden.Compare(t, name, w.Encode())
		if got, err := DecodeWelcome(golden.Read(t, name)); err != nil || got != w {
			t.Errorf("%+v became %+v: %v", w, got, err)
		}
	}
}

func TestGoldenCollBlock(t *testing.T) {
	c := CollBlock{
		Kind: CollAllreduce, Type: TypeFloat64, Op: ReduceSum, Flags: CollCommutative | CollInPlace, Root: 3, Context: 5, Vectors: 2,
		Count: 1000, Elem: 8, In: 0x10000, InBytes: 8000, Out: 0x20000, OutBytes: 8001, Scratch: 0x30000, ScratchBytes: 8002, Algorithm: 9,
	}
	b := make([]byte, CollBlockBytes)
	c.Encode(b)
	golden.Compare(t, "collblock", b)
	var got CollBlock
	if err := got.Decode(b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

// TestWrongSizes: a message with another length than the fixed one is refused.
func TestWrongSizes(t *testing.T) {
	for _, n := range []int{0, 1, HelloBytes - 1, HelloBytes + 1} {
		if _, err := DecodeHello(append(golden.Read(t, "hello"), 0)[:n]); err == nil {
			t.Errorf("a hello of %d bytes was taken", n)
		}
	}
	for _, n := range []int{0, HelloBytes, WelcomeBytes - 1, WelcomeBytes + 1} {
		if _, err := DecodeWelcome(append(golden.Read(t, "welcome"), 0)[:n]); err == nil {
			t.Errorf("a welcome of %d bytes was taken", n)
		}
	}
	if err := new(CollBlock).Decode(make([]byte, CollBlockBytes-1)); err == nil {
		t.Error("a short collective block was taken")
	}
	for v := range uint32(6) {
		b := make([]byte, CollBlockBytes)
		b[12] = byte(v)
		if err := new(CollBlock).Decode(b); (err == nil) != (v == 0 || v == 2 || v == 4) {
			t.Errorf("a collective block with %d vectors: %v", v, err)
		}
	}
	long := Welcome{Text: string(make([]byte, WelcomeBytes))}
	if got, err := DecodeWelcome(long.Encode()); err != nil || len(got.Text) != textMax {
		t.Errorf("a text of %d bytes became one of %d: %v", len(long.Text), len(got.Text), err)
	}
}

// FuzzCollBlock: a block is refused, or has the same meaning after it is encoded again.
func FuzzCollBlock(f *testing.F) {
	f.Add(make([]byte, CollBlockBytes))
	f.Add(golden.Read(f, "collblock"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c, again CollBlock
		if c.Decode(raw) != nil {
			return
		}
		b := make([]byte, CollBlockBytes)
		c.Encode(b)
		if err := again.Decode(b); err != nil || again != c {
			t.Fatalf("%+v became %+v: %v", c, again, err)
		}
	})
}
