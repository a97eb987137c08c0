package verbs

import (
	"errors"
	"strings"
	"testing"
)

func goodOffer() offer {
	return offer{fabric: RoCEv2, mtu: 5, reads: 16, lid: 7, slots: recvSlots, slotLen: slotBytes, pair: 0x123456, packet: 0xabcdef, gid: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 1}, device: "mlx5_0"}
}

func TestOffer(t *testing.T) {
	want := goodOffer()
	got, err := parseOffer(want.encode())
	if err != nil || got != want {
		t.Errorf("%+v became %+v, %v", want, got, err)
	}
	want.lends = true
	if got, err = parseOffer(want.encode()); err != nil || got != want {
		t.Errorf("%+v became %+v, %v", want, got, err)
	}
	for what, spoil := range map[string]func(b []byte) []byte{
		"40 bytes":    func(b []byte) []byte { return b[:39] },
		"too long":    func(b []byte) []byte { return append(b, make([]byte, OfferMax)...) },
		"version":     func(b []byte) []byte { b[0] = 1; return b },
		"fabric(0)":   func(b []byte) []byte { b[1] = 0; return b },
		"fabric(9)":   func(b []byte) []byte { b[1] = 9; return b },
		"MTU code 6":  func(b []byte) []byte { b[2] = 6; return b },
		"queue pair":  func(b []byte) []byte { b[11] = 1; return b },
		"packet":      func(b []byte) []byte { b[15] = 1; return b },
		"receives":    func(b []byte) []byte { b[6]++; return b },
		"reserved":    func(b []byte) []byte { b[36] = 2; return b },
		"more of it":  func(b []byte) []byte { b[38] = 1; return b },
		"is not text": func(b []byte) []byte { b[41] = 0xff; return b },
	} {
		o := goodOffer()
		if _, err := parseOffer(spoil(o.encode())); !errors.Is(err, errOffer) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestFabrics checks that sides of different fabrics are not connected, and that the
// error names both devices.
func TestFabrics(t *testing.T) {
	a, b := goodOffer(), goodOffer()
	b.fabric, b.device = InfiniBand, "mlx4_1"
	err := a.matches(&b)
	if err == nil || !strings.Contains(err.Error(), "mlx5_0 is on RoCE v2") || !strings.Contains(err.Error(), "mlx4_1 on InfiniBand") {
		t.Error(err)
	}
}

// FuzzOffer checks that an accepted offer is encoded the same way.
func FuzzOffer(f *testing.F) {
	o := goodOffer()
	f.Add(o.encode())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := parseOffer(raw)
		if err != nil {
			if !errors.Is(err, errOffer) {
				t.Fatalf("%v does not wrap errOffer", err)
			}
			return
		}
		if again := o.encode(); string(again) != string(raw) {
			t.Errorf("%x became %x", raw, again)
		}
	})
}
