package p2p

import "testing"

// TestCopiesOfAllSizes checks that copies of one size, after they have used all memory for copies,
// leave room for copies of smaller sizes.
func TestCopiesOfAllSizes(t *testing.T) {
	p := pool{limit: copyReserve}
	for size := uint64(16 << 10); size >= 64; size /= 2 {
		var taken []func()
		for {
			r, ok := p.get(size)
			if !ok {
				break
			}
			taken = append(taken, func() { p.put(r) })
		}
		if len(taken) < int(copyReserve/charge(size)) {
			t.Errorf("%d copies of %d bytes, want %d", len(taken), size, copyReserve/charge(size))
		}
		for _, free := range taken {
			free()
		}
	}
	if p.inUse != 0 || p.next > p.limit {
		t.Errorf("%d bytes are in use, %d of %d were used", p.inUse, p.next, p.limit)
	}
}
