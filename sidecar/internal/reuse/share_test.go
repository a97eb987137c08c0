package reuse

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestShares: when the entries are used up, who knows less than its share takes from who
// knows more, from nobody else, and no more than that.
func TestShares(t *testing.T) {
	x, err := New(Config{Buckets: 1024, Entries: 9, Sessions: 3})
	if err != nil {
		t.Fatal(err)
	}
	x.Calibrate(PathSend, []Sample{{Bytes: 1, NS: 1000}}, []Sample{{Bytes: 1, NS: 1e9}}, 50)
	use := func(s Session, buffers uint64) {
		for i := range buffers {
			x.Use(s, PathSend, link.Ref{Region: link.Region(s + 4), Off: i << 12, Len: 4096})
		}
	}
	known := func(want ...uint32) {
		t.Helper()
		for s, n := range want {
			if c := x.Session(Session(s)); c.Known != n {
				t.Errorf("rank %d knows %d buffers, want %d", s, c.Known, n)
			}
		}
	}
	use(0, 3)
	use(1, 6)
	known(3, 6, 0)
	use(2, 3)
	known(3, 3, 3)
	use(2, 9)
	known(3, 3, 3)
	if c := x.Session(2); !c.Stopped {
		t.Error("who has its share goes on to look for room")
	}
	if x.Registered(0, link.Ref{Region: 4, Len: 4096}) {
		t.Error("a buffer that is known is taken for one that is registered")
	}
}
