package reuse

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestShares checks that when the entries are used up, a session with less than its share
// takes entries from one with more, from no other one, and no more than its share.
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
		t.Error("a session with its share goes on looking for room")
	}
	if x.Registered(0, link.Ref{Region: 4, Len: 4096}) {
		t.Error("a buffer that is known is taken for one that is registered")
	}
}

// TestClassEnds checks that messages of any size have a class, the largest ones the last.
func TestClassEnds(t *testing.T) {
	last := 0
	for n := uint64(1); n != 0; n *= 2 {
		k := class(n)
		if k < last || k >= classCount {
			t.Fatalf("%d bytes are of class %d of %d, half as many of %d", n, k, classCount, last)
		}
		last = k
	}
	if class(^uint64(0)) != classCount-1 || class(0) != 0 {
		t.Errorf("classes %d and %d, want %d and 0", class(^uint64(0)), class(0), classCount-1)
	}
}

// TestPausesDouble checks that a part of the table that begins to grow without success
// waits twice as long each time, up to pauseMax windows.
func TestPausesDouble(t *testing.T) {
	x := calibrated(t, Config{})
	a := &x.sessions[0]
	for _, want := range []int{1, 2, 4, 8, 16, 32, pauseMax, pauseMax} {
		x.stop(a)
		n := 0
		for a.stopped {
			a.unknown, a.used = 100, 100
			x.judge(a)
			n++
		}
		if n != want {
			t.Errorf("began again after %d windows, want %d", n, want)
		}
	}
}
