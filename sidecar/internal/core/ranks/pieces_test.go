package ranks

import "testing"

// parts are the pieces of an arena in a test. They count the lookups.
type parts struct {
	list  [][2]uint64
	asked int
}

func (p *parts) Around(off uint64) (from, to uint64) {
	p.asked++
	for _, s := range p.list {
		if s[0] <= off && off < s[1] {
			return s[0], s[1]
		}
	}
	return 0, 0
}

// TestPieces checks that only a range within one piece counts as allocated, and that the piece
// of the last message needs no lookup.
func TestPieces(t *testing.T) {
	all := &parts{list: [][2]uint64{{4096, 8192}, {16384, 32768}}}
	p := pieces{all: all}
	for _, c := range []struct {
		off, length uint64
		want        bool
	}{
		{0, 1, false},
		{0, 0, true},
		{4095, 2, false},
		{4096, 4096, true},
		{4096, 4097, false},
		{8191, 1, true},
		{8192, 1, false},
		{4096, 16384, false},
		{16384, 16384, true},
		{32767, 2, false},
	} {
		if got := p.contain(c.off, c.length); got != c.want {
			t.Errorf("%d bytes at %d: %v, want %v", c.length, c.off, got, c.want)
		}
	}
	p.contain(16384, 1)
	before := all.asked
	for range 10 {
		p.contain(20000, 100)
	}
	if all.asked != before {
		t.Errorf("%d questions about the piece of the message before", all.asked-before)
	}
	all.list = append(all.list, [2]uint64{40960, 45056})
	if !p.contain(40960, 4096) {
		t.Error("a new piece is not known")
	}
}
