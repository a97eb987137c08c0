package shm

import "testing"

func TestHandshakeRoundTrip(t *testing.T) {
	h := Hello{ABI: 1, Features: FeaturesAll, Rank: 7, ArenaBytes: 1 << 40}
	if got, err := DecodeHello(h.Encode()); err != nil || got != h {
		t.Fatalf("%+v became %+v: %v", h, got, err)
	}
	w := Welcome{ABI: 1, Features: 3, Accepted: true, Rank: 1, Ranks: 2, Pod: 3, Pods: 4, SegmentBytes: 5, ArenaBytes: 6, EagerBytes: 7, Text: "why"}
	if got, err := DecodeWelcome(w.Encode()); err != nil || got != w {
		t.Fatalf("%+v became %+v: %v", w, got, err)
	}
}

// FuzzHandshake: no bytes from the other side cause a panic, and an accepted message has the
// same meaning after it is encoded again.
func FuzzHandshake(f *testing.F) {
	f.Add((&Hello{ABI: 1}).Encode())
	f.Add((&Welcome{ABI: 1, Text: "no"}).Encode())
	f.Fuzz(func(t *testing.T, raw []byte) {
		if h, err := DecodeHello(raw); err == nil {
			if again, err := DecodeHello(h.Encode()); err != nil || again != h {
				t.Fatalf("%+v became %+v: %v", h, again, err)
			}
		}
		if w, err := DecodeWelcome(raw); err == nil {
			if again, err := DecodeWelcome(w.Encode()); err != nil || again != w {
				t.Fatalf("%+v became %+v: %v", w, again, err)
			}
		}
	})
}

// FuzzDescriptor: a ring entry with any content is within its bounds, and is the same after it
// is encoded again.
func FuzzDescriptor(f *testing.F) {
	f.Add(make([]byte, DescriptorBytes))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) < DescriptorBytes {
			return
		}
		var d, again Descriptor
		d.Decode((*[DescriptorBytes]byte)(raw))
		if n := len(d.Inline()); n > InlineMax {
			t.Fatalf("inline payload of %d bytes", n)
		}
		var b [DescriptorBytes]byte
		d.Encode(&b)
		again.Decode(&b)
		if again != d {
			t.Fatalf("%+v became %+v", d, again)
		}
	})
}
