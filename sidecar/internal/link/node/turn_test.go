package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// two are connected sides with their sinks.
type two struct {
	a, b          *side
	toA, toB      *counting
	there, hither *conn // a's end, b's end
}

func newTwo(t *testing.T, peers int) *two {
	t.Helper()
	x := &two{a: newSide(t, peers), b: newSide(t, peers), toA: &counting{mem: make([]byte, wire.FrameMax)}, toB: &counting{mem: make([]byte, wire.FrameMax)}}
	join(t, x.a, x.b)
	t.Cleanup(func() {
		for _, s := range []*side{x.a, x.b} {
			if err := s.l.Close(); err != nil {
				t.Error(err)
			}
		}
		if maps, err := os.ReadFile("/proc/self/maps"); err != nil || strings.Contains(string(maps), "memfd:sidecar-") {
			t.Errorf("%v: memory of a connection is still mapped", err)
		}
	})
	x.there, x.hither = x.a.l.conns[0], x.b.l.conns[0]
	x.rest(t)
	return x
}

// rest polls both until nothing happens.
func (x *two) rest(t *testing.T) {
	t.Helper()
	for range 1000 {
		if x.a.l.Poll(x.toA)+x.b.l.Poll(x.toB) == 0 {
			return
		}
	}
	t.Fatal("there is always something to do")
}

func (x *two) frame(n int) *link.Frame {
	return &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: uint32(n)}, Payload: x.a.m.NewRegion(n)}
}

// TestLies: a large payload that the peer can read takes a few bytes of the ring, any
// other all of its own.
func TestLies(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes int
		ready func(x *two, f *link.Frame)
		ring  uint64
	}{
		{"large", 100_000, func(*two, *link.Frame) {}, wire.HeaderBytes + refBytes},
		{"just large", wholeMax + 1, func(*two, *link.Frame) {}, wire.HeaderBytes + refBytes},
		{"not large", wholeMax, func(*two, *link.Frame) {}, wire.HeaderBytes + wholeMax},
		{"not passed on", 100_000, func(x *two, f *link.Frame) { x.a.l.DropRegion(f.Payload.Region) }, wire.HeaderBytes + 100_032},
		{"words are waiting", 100_000, func(x *two, f *link.Frame) { x.there.words = make([]word24, 1) }, wire.HeaderBytes + 100_032},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTwo(t, 1)
			f := x.frame(c.bytes)
			c.ready(x, f)
			if n := x.a.l.Post(0, []*link.Frame{f}); n != 1 {
				t.Fatalf("%d frames taken", n)
			}
			if got := x.there.out.at; got != c.ring {
				t.Errorf("%d bytes of the ring, want %d", got, c.ring)
			}
			x.there.words = nil
			x.rest(t)
			if x.toB.frames != 1 || x.toB.bytes != c.bytes {
				t.Errorf("%v, want a frame of %d bytes", x.toB, c.bytes)
			}
		})
	}
}

// TestAheadIsBounded: payloads that wait where they lie are bounded in bytes, and in
// number.
func TestAheadIsBounded(t *testing.T) {
	for _, c := range []struct{ bytes, want int }{{100_000, 3}, {1 << 20, 1}, {wholeMax + 1, refsMax - 1}} {
		t.Run(fmt.Sprint(c.bytes), func(t *testing.T) {
			x := newTwo(t, 1)
			f, n := x.frame(c.bytes), 0
			for x.a.l.Post(0, []*link.Frame{f}) == 1 {
				n++
			}
			if n < c.want || n > c.want+1 {
				t.Errorf("%d frames of %d bytes are ahead, want %d", n, c.bytes, c.want)
			}
			if x.there.oldest() != 1 {
				t.Errorf("frame %d is the oldest whose payload is not the peer's", x.there.oldest())
			}
			x.b.l.Poll(x.toB)
			if x.a.l.Poll(x.toA) == 0 || x.a.l.Post(0, []*link.Frame{f}) != 1 {
				t.Error("nothing is taken after the peer has come to some")
			}
			x.rest(t)
			if n := x.there.oldest(); n != 0 {
				t.Errorf("the payload of frame %d is not the peer's, it seems", n)
			}
		})
	}
}

// TestArm: whoever goes to sleep says so, and only until it is awake again; and does not
// sleep while there is something that nobody will tell of.
func TestArm(t *testing.T) {
	x := newTwo(t, 1)
	if x.a.l.Arm() {
		t.Error("there is work, and nothing has come")
	}
	if x.hither.out.sleep.Load() == 0 {
		t.Error("the peer does not know that this side sleeps")
	}
	x.a.l.Poll(x.toA)
	if x.hither.out.sleep.Load() != 0 {
		t.Error("the peer takes this side to be asleep")
	}
	x.b.l.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Heartbeat}}})
	if !x.a.l.Arm() {
		t.Error("a frame has come, and it may sleep")
	}
	x.rest(t)
	small := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: 64}}
	for x.a.l.Post(0, []*link.Frame{small}) == 1 {
	}
	if x.a.l.Poll(x.toA) != 0 {
		t.Error("there is work, and no room")
	}
	if x.a.l.Arm() {
		t.Error("there is work, and no room")
	}
	if x.hither.in.waits.Load() == 0 {
		t.Error("the peer does not know that this side waits for room")
	}
	for x.hither.in.at < x.there.out.at {
		x.b.l.Poll(x.toB)
	}
	if x.hither.in.waits.Load() != 0 {
		t.Error("the peer has not seen that this side waits")
	}
	if !x.a.l.Arm() {
		t.Error("there is room, and it may sleep")
	}
	if x.a.l.Poll(x.toA) == 0 {
		t.Error("there is room, and no work")
	}
	if x.hither.in.waits.Load() != 0 {
		t.Error("the peer takes this side to be waiting")
	}
	x.rest(t)
}

// TestHalfAFrame: a part of a frame that stays one is looked at once.
func TestHalfAFrame(t *testing.T) {
	x := newTwo(t, 1)
	x.there.out.put(make([]byte, 40))
	x.there.out.tell()
	x.rest(t)
	if x.b.l.Arm() {
		t.Error("there is work, of which the rest is missing")
	}
}

// TestPollIsBounded: a poll hands over a bounded part of what one peer has sent, and
// begins with another one next time.
func TestPollIsBounded(t *testing.T) {
	x := newTwo(t, 1)
	f := x.frame(100_000)
	for range 3 { // where they lie
		x.a.l.Post(0, []*link.Frame{f})
	}
	x.b.l.Poll(x.toB)
	if x.toB.frames != 1 { // 164 KB of the three
		t.Errorf("%v in one poll", x.toB)
	}
	x.rest(t)
	if x.toB.frames != 3 {
		t.Errorf("%v", x.toB)
	}
}
