package tcp_test

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// crowd is a link with connections, and the other ends of their sockets.
type crowd struct {
	t    *testing.T
	l    *tcp.Link
	sink *heard
	ends []int
}

// heard also notes the peer whose connection has ended.
type heard struct {
	tally
	down link.Peer
}

func (h *heard) Down(peer link.Peer, _ error) { h.down = peer }

// newCrowd makes a crowd whose connections are all silent.
func newCrowd(t *testing.T, peers int) *crowd {
	t.Helper()
	l, err := tcp.New(linktest.NewMemory(), peers)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, l: l, sink: &heard{tally: tally{frames: make([]int, peers)}}}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, fd := range c.ends {
			unix.Close(fd)
		}
	})
	for peer := range peers {
		x, y := socketPair(t)
		c.ends = append(c.ends, y)
		if err := l.Attach(link.Peer(peer), x); err != nil {
			t.Fatal(err)
		}
	}
	c.beSilent()
	return c
}

// beSilent polls until no connection is read.
func (c *crowd) beSilent() {
	c.t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Millisecond) {
		before := c.l.Stats()
		c.polls(1000)
		if s := c.l.Stats(); s.Reads == before.Reads && s.Looks-before.Looks < 500 { // of many in use, epoll tells each time
			return
		}
	}
	c.t.Fatal("connections that carry nothing are read for a minute")
}

func (c *crowd) polls(n int) {
	for range n {
		c.l.Poll(c.sink)
	}
}

// sign is a frame without a payload.
func sign() []byte {
	var b [wire.HeaderBytes]byte
	(&wire.Header{Type: wire.Heartbeat}).Encode(&b)
	return b[:]
}

// sends writes a frame to the socket of a peer.
func (c *crowd) sends(peer int, frames int) {
	c.t.Helper()
	for range frames {
		if n, err := unix.Write(c.ends[peer], sign()); err != nil || n != wire.HeaderBytes {
			c.t.Fatalf("%d bytes written: %v", n, err)
		}
	}
}

// TestSilentConnections checks that a silent connection is never read, that all silent ones
// share calls of epoll_wait at most every 20 us, and that one which is not silent costs what it
// costs alone.
func TestSilentConnections(t *testing.T) {
	const n = 10_000
	for _, peers := range []int{1, 8, 9, 200} {
		c := newCrowd(t, peers)
		before, begun := c.l.Stats(), time.Now()
		c.polls(n)
		looks := c.l.Stats().Looks - before.Looks
		if most := uint64(time.Since(begun)/(20*time.Microsecond)) + 1; looks == 0 || looks > min(most, n/8+1) {
			t.Errorf("%d peers: %d calls of epoll_wait in %d polls, want 1 to %d", peers, looks, n, most)
		}
		if reads := c.l.Stats().Reads - before.Reads; reads != 0 {
			t.Errorf("%d peers: %d reads of silent connections", peers, reads)
		}
		for range 300 {
			c.sends(0, 1)
			for had := c.sink.frames[0]; c.sink.frames[0] == had; {
				c.polls(1)
			}
		}
		before = c.l.Stats()
		c.polls(500)
		if reads := c.l.Stats().Reads - before.Reads; reads != 500 {
			t.Errorf("%d peers: %d reads in 500 polls with one connection in use", peers, reads)
		}
	}
}

// TestSilentConnectionIsHeard checks that a frame on a silent connection arrives at the latest
// with the next look, at once after Arm, and after a Post is awaited as before.
func TestSilentConnectionIsHeard(t *testing.T) {
	c := newCrowd(t, 20)
	c.sends(7, 1)
	for begun := time.Now(); c.sink.frames[7] == 0; {
		c.polls(1)
		if time.Since(begun) > time.Minute {
			t.Fatal("the frame is never read")
		}
	}
	c.sends(8, 1)
	c.l.Arm()
	if c.polls(1); c.sink.frames[8] != 1 {
		t.Error("the first Poll after Arm does not look at silent connections")
	}
	f := &link.Frame{Head: wire.Header{Type: wire.Heartbeat}}
	if n := c.l.Post(9, []*link.Frame{f}); n != 1 {
		t.Fatal("the frame is not accepted")
	}
	c.sends(9, 1)
	if c.polls(1); c.sink.frames[9] != 1 {
		t.Error("a connection on which something was posted is not read")
	}
	if unix.Close(c.ends[3]) != nil {
		t.Fatal("close")
	}
	c.ends[3] = -1
	for begun := time.Now(); c.sink.down != 3; {
		c.polls(1)
		if time.Since(begun) > time.Minute {
			t.Fatal("the end of a silent connection is not noticed")
		}
	}
}

// TestBusyConnectionsAndASilentOne checks that connections which always have more data than a
// Poll reads do not keep a silent one from being read.
func TestBusyConnectionsAndASilentOne(t *testing.T) {
	const busy = 4
	c := newCrowd(t, busy+1)
	raw := bytes.Repeat(sign(), 1<<10)
	written := make([]int, busy)
	fill := func() {
		for peer := range busy {
			for {
				n, err := unix.Write(c.ends[peer], raw[written[peer]%len(raw):])
				if err != nil {
					break // it is full
				}
				written[peer] += n
			}
		}
	}
	for _, fd := range c.ends[:busy] {
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	c.sends(busy, 1)
	for n := 0; c.sink.frames[busy] == 0; n++ {
		if n > 1000 {
			t.Fatal("a silent connection is not read while others are busy")
		}
		c.polls(1)
		fill()
	}
}
