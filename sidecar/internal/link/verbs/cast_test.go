package verbs

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestCastsLeaveNothing checks that casts that are posted, in flight, or waiting for
// Commit when their connection is lost or forgotten release their slots, and that no cast
// is accepted without a connection, for memory of another domain, or with a size or
// notification that a cast cannot have.
func TestCastsLeaveNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		for n := range 36 {
			x := newBench(t, receives)
			k := x.register(2<<20, 1<<20)
			src := x.mem[:1+n*37%slotBytes] // inline, and not
			cast := func(times int) {
				for i := range times {
					x.a.Cast(0, src, k, uint64(i%2))
				}
			}
			cast(n)
			for range n % 7 {
				x.a.Poll(x.sa)
				x.b.Poll(x.sb)
			}
			cast(n / 2)
			if n%2 == 0 {
				x.a.Break(0)
				x.until("the end of the connection", func() bool { return len(x.sa.downs) > 0 })
			} else {
				x.a.Forget(0)
				x.a.Poll(x.sa)
			}
			if len(x.a.stage.free) != sendSlots {
				t.Fatalf("%d casts leave %d of %d slots", n, len(x.a.stage.free), sendSlots)
			}
			if x.a.Cast(0, src, k, 0) {
				t.Fatal("a cast is accepted without a connection")
			}
		}
		x := newBench(t, receives)
		k := x.register(2<<20, 1<<20)
		strange := k
		strange.Key |= 5 << domainShift
		src := x.mem[:slotBytes]
		if x.a.Cast(0, src, strange, 0) || x.a.Cast(0, src, link.Key{Key: 7}, 0) || x.a.Cast(0, src, k, 1<<notifyShift) {
			t.Error("an impossible cast is accepted")
		}
		if x.a.Cast(0, x.mem[:slotBytes+1], k, 0) {
			t.Error("a cast larger than a slot is accepted")
		}
	})
}

// TestCastsComeInOrder checks that casts that wait for room, or whose notifications wait
// for receives, are all posted when there is room, in order, even if nothing else is
// posted.
func TestCastsComeInOrder(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		for _, withNotify := range []bool{false, true} {
			x := newBench(t, receives)
			k := x.register(2<<20, 1<<20)
			there := x.mem[2<<20:][:8]
			const casts = 500
			seen := uint64(0)
			for n := uint64(1); n <= casts || seen < casts; {
				for ; n <= casts; n++ { // as many as there is room for
					var b [slotBytes]byte
					binary.LittleEndian.PutUint64(b[:], n)
					notify := uint64(0)
					if withNotify {
						notify = n
					}
					if !x.a.Cast(0, b[:8+n*131%(slotBytes-8)], k, notify) {
						break
					}
				}
				x.a.Poll(x.sa)
				x.b.Poll(x.sb)
				now := binary.LittleEndian.Uint64(there)
				if now < seen || now >= n {
					t.Fatalf("in place is cast %d after %d of %d", now, seen, n-1)
				}
				seen = now
				if x.a.stats.Polls > 10_000 {
					t.Fatalf("of %d casts %d have arrived", n-1, seen)
				}
			}
			x.until("all notifications", func() bool { return !withNotify || len(x.sb.written) == casts })
			for i, n := range x.sb.written {
				if n != uint64(i+1) {
					t.Fatalf("notification %d is %d", i, n)
				}
			}
			if len(x.sb.written) != 0 && !withNotify || len(x.sa.downs)+len(x.sb.downs) > 0 {
				t.Errorf("%d notifications, %v %v", len(x.sb.written), x.sa.downs, x.sb.downs)
			}
		}
	})
}

// TestCastWithoutSlot checks that a cast without a free slot is not accepted, and is
// accepted when there is one.
func TestCastWithoutSlot(t *testing.T) {
	x := newBench(t, "own")
	k := x.register(2<<20, 1<<20)
	var held []int32
	c := x.a.conns[0]
	for s := c.allocSlot(); s >= 0; s = c.allocSlot() {
		held = append(held, s)
	}
	if x.a.Cast(0, x.mem[:64], k, 0) {
		t.Fatal("the cast is accepted")
	}
	x.a.Poll(x.sa)
	for _, s := range held {
		c.freeSlot(s)
	}
	if !x.a.Cast(0, x.mem[:64], k, 0) || len(x.sa.downs) > 0 {
		t.Errorf("no cast is accepted although there are slots, or the connection ends: %v", x.sa.downs)
	}
}

// TestCastsHideNothing checks that a side that sends only casts, one in each turn,
// handles messages of its peers and events of its device within a few turns, and at once
// after other requests.
func TestCastsHideNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		x := newBench(t, receives)
		k := x.register(2<<20, 1<<20)
		turn := func() {
			if !x.a.Cast(0, x.mem[:64], k, 0) {
				t.Fatal("a cast is not accepted")
			}
			x.a.Poll(x.sa)
			x.b.Poll(x.sb)
		}
		skipPolls := 0
		for n := range 100 {
			if x.b.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: uint64(n + 1)}}}) != 1 {
				t.Fatal("a frame is not accepted")
			}
			x.b.Poll(x.sb)
			turns := 0
			for ; len(x.sa.heads) == n; turns++ {
				if turns > skipPollsMax {
					t.Fatalf("frame %d has arrived, but is not handled in %d turns", n, turns)
				}
				before := x.a.stats.Polls
				if turn(); x.a.stats.Polls == before {
					skipPolls++
				}
			}
		}
		if skipPolls == 0 {
			t.Error("the device is polled in every turn")
		}
		for n := range uint64(10) {
			turn()
			before := x.a.stats.Polls
			x.a.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Seq: n + 1}}})
			if x.a.Poll(x.sa); x.a.stats.Polls == before {
				t.Fatal("a frame is sent, but the device is not polled")
			}
			x.b.Poll(x.sb)
		}
		x.an.broken = unix.EIO
		for turns := 0; x.a.lost == nil; turns++ {
			if turns > skipPollsMax {
				t.Fatalf("a lost device is not noticed in %d turns", turns)
			}
			x.a.Cast(0, x.mem[:64], k, 0)
			x.a.Poll(x.sa)
		}
		x.until("the end of the connection", func() bool { return len(x.sa.downs) == 1 })
	})
}
