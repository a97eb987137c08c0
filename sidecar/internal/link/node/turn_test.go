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

// rest polls both until neither has work.
func (x *two) rest(t *testing.T) {
	t.Helper()
	for range 1000 {
		if x.a.l.Poll(x.toA)+x.b.l.Poll(x.toB) == 0 {
			return
		}
	}
	t.Fatal("Poll always reports work")
}

func (x *two) frame(n int) *link.Frame {
	return &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: uint32(n)}, Payload: x.a.m.NewRegion(n)}
}

// TestReferences checks that a large payload that the peer can read takes a few bytes of
// the ring, and every other payload its own size.
func TestReferences(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes int
		ready func(x *two, f *link.Frame)
		ring  uint64
	}{
		{"large", 100_000, func(*two, *link.Frame) {}, wire.HeaderBytes + refBytes},
		{"just large", wholeMax + 1, func(*two, *link.Frame) {}, wire.HeaderBytes + refBytes},
		{"not large", wholeMax, func(*two, *link.Frame) {}, wire.HeaderBytes + wholeMax},
		{"not shared", 100_000, func(x *two, f *link.Frame) { x.a.l.DropRegion(f.Payload.Region) }, wire.HeaderBytes + 100_032},
		{"control messages are waiting", 100_000, func(x *two, f *link.Frame) { x.there.unsent = make([]control, 1) }, wire.HeaderBytes + 100_032},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTwo(t, 1)
			f := x.frame(c.bytes)
			c.ready(x, f)
			if n := x.a.l.Post(0, []*link.Frame{f}); n != 1 {
				t.Fatalf("%d frames accepted", n)
			}
			if got := x.there.out.at; got != c.ring {
				t.Errorf("%d bytes of the ring, want %d", got, c.ring)
			}
			x.there.unsent = nil
			x.rest(t)
			if x.toB.frames != 1 || x.toB.bytes != c.bytes {
				t.Errorf("%v, want a frame of %d bytes", x.toB, c.bytes)
			}
		})
	}
}

// TestRefsAreBounded checks that payloads sent by reference are bounded in bytes and in
// number.
func TestRefsAreBounded(t *testing.T) {
	for _, c := range []struct{ bytes, want int }{{100_000, 3}, {1 << 20, 1}, {wholeMax + 1, refsMax - 1}} {
		t.Run(fmt.Sprint(c.bytes), func(t *testing.T) {
			x := newTwo(t, 1)
			f, n := x.frame(c.bytes), 0
			for x.a.l.Post(0, []*link.Frame{f}) == 1 {
				n++
			}
			if n < c.want || n > c.want+1 {
				t.Errorf("%d frames of %d bytes are in flight, want %d", n, c.bytes, c.want)
			}
			if x.there.oldest() != 1 {
				t.Errorf("frame %d is the oldest whose payload the peer has not read, want 1", x.there.oldest())
			}
			x.b.l.Poll(x.toB)
			if x.a.l.Poll(x.toA) == 0 || x.a.l.Post(0, []*link.Frame{f}) != 1 {
				t.Error("no frame is accepted after the peer has read some")
			}
			x.rest(t)
			if n := x.there.oldest(); n != 0 {
				t.Errorf("the payload of frame %d counts as unread", n)
			}
		})
	}
}

// TestArm checks that a side sets its flags when it goes to sleep and clears them when it
// is awake again, and that it does not sleep while there is work that no event reports.
func TestArm(t *testing.T) {
	x := newTwo(t, 1)
	if x.a.l.Arm() {
		t.Error("Arm reports work before any frame")
	}
	if x.hither.out.sleep.Load() == 0 {
		t.Error("the peer does not see that this side sleeps")
	}
	x.a.l.Poll(x.toA)
	if x.hither.out.sleep.Load() != 0 {
		t.Error("the peer still sees that this side sleeps")
	}
	x.b.l.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Heartbeat}}})
	if !x.a.l.Arm() {
		t.Error("Arm reports no work although a frame has arrived")
	}
	x.rest(t)
	small := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: 64}}
	for x.a.l.Post(0, []*link.Frame{small}) == 1 {
	}
	if x.a.l.Poll(x.toA) != 0 {
		t.Error("Poll reports work although there is no room")
	}
	if x.a.l.Arm() {
		t.Error("Arm reports work although there is no room")
	}
	if x.hither.in.waits.Load() == 0 {
		t.Error("the peer does not see that this side waits for room")
	}
	for x.hither.in.at < x.there.out.at {
		x.b.l.Poll(x.toB)
	}
	if x.hither.in.waits.Load() != 0 {
		t.Error("the peer has not cleared the flag")
	}
	if !x.a.l.Arm() {
		t.Error("Arm reports no work although there is room")
	}
	if x.a.l.Poll(x.toA) == 0 {
		t.Error("Poll reports no work although there is room")
	}
	if x.hither.in.waits.Load() != 0 {
		t.Error("the flag is set again")
	}
	x.rest(t)
}

// TestHalfAFrame checks that part of a frame is examined once, and then waits for the
// rest.
func TestHalfAFrame(t *testing.T) {
	x := newTwo(t, 1)
	x.there.out.put(make([]byte, 40))
	x.there.out.commit()
	x.rest(t)
	if x.b.l.Arm() {
		t.Error("Arm reports work although the rest of the frame is missing")
	}
}

// TestPollIsBounded checks that a poll hands over a bounded part of what one peer has
// sent, and begins with another peer next time.
func TestPollIsBounded(t *testing.T) {
	x := newTwo(t, 1)
	f := x.frame(100_000)
	for range 3 { // by reference
		x.a.l.Post(0, []*link.Frame{f})
	}
	x.b.l.Poll(x.toB)
	if x.toB.frames != 1 { // 164 KB of the three frames
		t.Errorf("%v in one poll", x.toB)
	}
	x.rest(t)
	if x.toB.frames != 3 {
		t.Errorf("%v", x.toB)
	}
}
