package ether

import (
	"bytes"
	"testing"
)

// sealers returns both ends of one direction.
func sealers(t testing.TB, encrypt bool) (tx, rx *sealer) {
	t.Helper()
	var a, b [secretBytes]byte
	a[0], b[0] = 1, 2
	tx, err := newSealer(&a, &b, encrypt)
	if err != nil {
		t.Fatal(err)
	}
	if rx, err = newSealer(&a, &b, encrypt); err != nil {
		t.Fatal(err)
	}
	return tx, rx
}

// TestSeal checks that packets of all sizes open, that their body is hidden if they are
// encrypted, and that a packet with any other bit does not open.
func TestSeal(t *testing.T) {
	for _, encrypt := range []bool{false, true} {
		tx, rx := sealers(t, encrypt)
		out := make([]byte, 0, 1<<16)
		for _, n := range []int{0, 1, 4, 24, 88, 1000, bodyMost} {
			body := bytes.Repeat([]byte{0xa5}, n)
			start := len(out)
			out = tx.seal(out, kindStream, 77, body)
			p := bytes.Clone(out[start:])
			if len(p) != headBytes+n+tagBytes || sessionOf(p) != 77 || kindOf(p) != kindStream || counterOf(p) != tx.counter {
				t.Fatalf("a body of %d bytes has a packet of %d, session %d, kind %d, counter %d", n, len(p), sessionOf(p), kindOf(p), counterOf(p))
			}
			if n >= 88 && bytes.Contains(p, body[:16]) == encrypt {
				t.Errorf("encrypted %v, and the body is visible: %v", encrypt, !encrypt)
			}
			got, err := rx.open(bytes.Clone(p))
			if err != nil || !bytes.Equal(got, body) {
				t.Fatalf("a body of %d bytes: %v, %d bytes", n, err, len(got))
			}
			for i := 0; i < len(p); i += 1 + len(p)/50 {
				other := bytes.Clone(p)
				other[i] ^= 1 << (i % 8)
				if _, err := rx.open(other); err == nil {
					t.Errorf("a packet whose byte %d was changed opens", i)
				}
			}
		}
	}
}

// TestReplay checks that each counter is accepted once, in any order within the window, and
// not after it.
func TestReplay(t *testing.T) {
	var r replay
	take := func(c uint64) bool {
		if r.seen(c) {
			return false
		}
		r.add(c)
		return true
	}
	for _, c := range []uint64{1, 3, 2, 900, 4, 960, 961, 5, 5000, 4041, 4999, 1 << 33} {
		if !take(c) {
			t.Errorf("counter %d is refused", c)
		}
		if take(c) {
			t.Errorf("counter %d is accepted twice", c)
		}
	}
	for _, c := range []uint64{0, 1, 5001, 1<<33 - replayWindow} {
		if take(c) {
			t.Errorf("counter %d, which is too old, is accepted", c)
		}
	}
}
