package wire

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden is a header as PROTOCOL.md §3.1 lays it out.
var golden = [HeaderBytes]byte{
	Version, byte(Data), FlagAckNow, 0, 0x10, 0x32, 0x04, 0x00,
	1, 2, 3, 4, 5, 6, 7, 8,
	9, 0, 0, 0, 0, 0, 0, 0,
	0x44, 0x33, 0x22, 0x11, 7, 0, 0, 0,
	3, 0, 0, 0, 4, 0, 0, 0,
	0xaa, 0, 0, 0, 0, 0, 0, 0xbb,
	1, 0, 0, 0, 2, 0, 0, 0,
	5, 0, 0, 0, 0, 0, 0, 0,
}

func TestGoldenHeader(t *testing.T) {
	want := Header{
		Type: Data, Flags: FlagAckNow, Length: 0x43210, Seq: 0x0807060504030201, Ack: 9, Credit: 0x11223344, Context: 7,
		Src: 3, Dst: 4, Tag: 0xbb000000000000aa, A: 0x0000000200000001, B: 5,
	}
	var got Header
	if err := got.Decode(&golden); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	var b [HeaderBytes]byte
	got.Encode(&b)
	if b != golden {
		t.Fatalf("encoded\n% x\nwant\n% x", b, golden)
	}
}

// FuzzHeader: any 64 bytes are either refused as malformed or mean the same
// after being written again.
func FuzzHeader(f *testing.F) {
	f.Add(golden[:])
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
