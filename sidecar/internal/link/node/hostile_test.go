package node

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// hostile is a peer of b that does as it likes with the memory and the sockets that they
// share.
type hostile struct {
	t *testing.T
	b *side
	c *conn // the hostile side
	s *counting
}

// newHostile connects one.
func newHostile(t *testing.T) *hostile {
	t.Helper()
	a, b := newSide(t, somePeers+1), newSide(t, somePeers+1)
	join(t, a, b)
	t.Cleanup(func() {
		if err := errors.Join(a.l.Close(), b.l.Close()); err != nil {
			t.Error(err)
		}
	})
	return &hostile{t, b, a.l.conns[0], &counting{mem: make([]byte, wire.FrameMax)}}
}

// says sends a control message with descriptors.
func (f *hostile) says(b []byte, fds ...int) {
	f.t.Helper()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(f.c.local, b, oob, nil, 0); err != nil {
		f.t.Fatal(err)
	}
}

// writes puts raw bytes into the ring.
func (f *hostile) writes(b []byte) {
	f.c.out.put(b)
	f.c.out.commit()
}

// frame returns a header that refers to a payload.
func frame(n uint32, region, off uint64) []byte {
	b := make([]byte, wire.HeaderBytes+refBytes)
	h := wire.Header{Type: wire.Data, Seq: 1, Length: n}
	h.Encode((*[wire.HeaderBytes]byte)(b))
	b[refAt] = byRef
	binary.LittleEndian.PutUint64(b[wire.HeaderBytes:], region)
	binary.LittleEndian.PutUint64(b[wire.HeaderBytes+8:], off)
	return b
}

// ends polls b, which must end the connection.
func (f *hostile) ends(want error) {
	f.t.Helper()
	f.b.l.conns[0].wakes = wakesMax // messages are read
	for range 10 * socketPollInterval {
		f.b.l.checkSockets = true
		f.b.l.Poll(f.s)
		if len(f.s.downs) > 0 {
			break
		}
	}
	if len(f.s.downs) != 1 || !errors.Is(f.s.downs[0], want) || f.s.frames > 0 {
		f.t.Fatalf("the link reported %v, want one end with %v", f.s, want)
	}
	f.t.Log(f.s.downs[0])
	if c := f.b.l.conns[0]; c != nil {
		f.t.Fatal("the connection is still there")
	}
}

// memory returns a sealed file of n bytes.
func memory(t *testing.T, n int) int {
	t.Helper()
	fd, mem, err := segment.Create("hostile", n)
	if err == nil {
		err = segment.Unmap(mem)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func controlMessage(kind uint32, region link.Region, off, size uint64) []byte {
	b := (&control{kind: kind, region: region, off: off, size: size}).encode()
	return b[:]
}

// TestHostilePositions checks that a position that a peer publishes is bounded by the
// ring.
func TestHostilePositions(t *testing.T) {
	for name, lie := range map[string]func(c *conn){
		"ahead of the ring":   func(c *conn) { c.out.mine.Store(c.out.at + uint64(len(c.out.mem)) + 1) },
		"behind itself":       func(c *conn) { c.out.mine.Store(c.out.at - 64) },
		"far away":            func(c *conn) { c.out.mine.Store(1 << 63) },
		"read before written": func(c *conn) { c.in.mine.Store(64) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newHostile(t)
			lie(f.c)
			f.b.l.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Heartbeat}}})
			f.ends(link.ErrProtocol)
		})
	}
}

// TestHostileReferences checks that a frame may refer only to regions that the peer has
// passed.
func TestHostileReferences(t *testing.T) {
	const size = 1 << 16
	for name, raw := range map[string][]byte{
		"a region that was not announced":     frame(8192, 8, 0),
		"a region number of 33 bits":          frame(8192, 1<<32|7, 0),
		"beyond the end":                      frame(8192, 7, size-8191),
		"far away":                            frame(8192, 7, 1<<63),
		"an end that wraps":                   frame(8192, 7, ^uint64(0)-100),
		"a payload small enough for the ring": frame(wholeMax, 7, 0),
		"no payload":                          frame(0, 7, 0),
		"more than a frame":                   frame(wire.FrameMax+1, 7, 0),
		"a mark that does not exist":          func() []byte { b := frame(8192, 7, 0); b[refAt] |= 2; return b }(),
	} {
		t.Run(name, func(t *testing.T) {
			f := newHostile(t)
			f.says(controlMessage(controlHere, 7, 0, size), memory(t, size))
			f.writes(raw)
			f.ends(link.ErrProtocol)
		})
	}
	t.Run("and right", func(t *testing.T) {
		f := newHostile(t)
		f.says(controlMessage(controlHere, 7, 4096, size-4096), memory(t, size))
		f.writes(frame(8192, 7, size-4096-8192))
		for range 10 {
			f.b.l.Poll(f.s)
		}
		if f.s.frames != 1 || f.s.bytes != 8192 || len(f.s.downs) > 0 {
			t.Errorf("%v, want a frame of 8192 bytes", f.s)
		}
	})
}

// TestHostileControls checks that a wrong control message ends the connection, and leaks
// no descriptor.
func TestHostileControls(t *testing.T) {
	const size = 1 << 16
	good := memory(t, size)
	unsealed, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(unsealed, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(unsealed)
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	here := func(off, n uint64) []byte { return controlMessage(controlHere, 7, off, n) }
	for name, x := range map[string]struct {
		raw  []byte
		fds  []int
		want error
	}{
		"too short":                          {here(0, size)[:23], nil, link.ErrProtocol},
		"too long":                           {append(here(0, size), 0), nil, link.ErrProtocol},
		"kind 0":                             {controlMessage(0, 0, 0, 0), nil, link.ErrProtocol},
		"kind 4":                             {controlMessage(4, 0, 0, 0), nil, link.ErrProtocol},
		"no descriptor":                      {here(0, size), nil, link.ErrProtocol},
		"two descriptors":                    {here(0, size), []int{good, good}, link.ErrProtocol},
		"more descriptors than are accepted": {here(0, size), []int{good, good, good, good, good, good, good, good, good, good, good, good}, link.ErrBroken},
		"not sealed":                         {here(0, size), []int{unsealed}, link.ErrBroken},
		"a device":                           {here(0, size), []int{int(zero.Fd())}, link.ErrBroken},
		"larger than it is":                  {here(0, size+1), []int{good}, link.ErrBroken},
		"beyond its end":                     {here(4096, size), []int{good}, link.ErrBroken},
		"an end that wraps":                  {here(^uint64(0)-4095, 8192), []int{good}, link.ErrBroken},
		"not at a page":                      {here(100, 100), []int{good}, link.ErrBroken},
		"nothing":                            {here(0, 0), []int{good}, link.ErrBroken},
		"a descriptor without a message":     {nil, []int{good}, link.ErrProtocol},
		"a descriptor with a wake-up":        {controlMessage(controlWake, 0, 0, 0), []int{good}, link.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			f := newHostile(t)
			open := openFiles(t)
			f.says(x.raw, x.fds...)
			if x.want != nil {
				f.ends(x.want)
				open -= 2 // of the connection
			} else {
				for range 2 * (wakesMax + 1) {
					f.says(controlMessage(controlWake, 0, 0, 0))
					f.b.l.checkSockets = true
					f.b.l.Poll(f.s)
				}
			}
			for range 5000 { // a goroutine closes the descriptors
				if openFiles(t) == open {
					return
				}
				time.Sleep(time.Millisecond)
			}
			t.Errorf("%d descriptors are open, want %d", openFiles(t), open)
		})
	}
	t.Run("announced twice", func(t *testing.T) {
		f := newHostile(t)
		f.says(here(0, size), good)
		f.says(here(0, size), good)
		f.writes(frame(8192, 9, 0)) // which makes it read control messages
		f.ends(link.ErrProtocol)
	})
	t.Run("gone while it is read", func(t *testing.T) {
		f := newHostile(t)
		large := memory(t, wire.FrameMax)
		f.says(controlMessage(controlHere, 7, 0, wire.FrameMax), large)
		f.writes(frame(wire.FrameMax, 7, 0))
		f.b.l.Poll(f.s) // reads a part of the payload
		if !f.b.l.conns[0].src.pending() {
			t.Fatal("no read is in flight: the test shows nothing")
		}
		f.says(controlMessage(controlGone, 7, 0, 0))
		f.ends(link.ErrProtocol)
	})
}

// TestMeeting checks that a process that connects to the socket without the secret is
// rejected while the expected peer still connects, and that a segment of a wrong size is
// refused.
func TestMeeting(t *testing.T) {
	a, b := newSide(t, 2), newSide(t, 2)
	defer func() { _, _ = a.l.Close(), b.l.Close() }()
	pair := func() (first, second *Endpoint) {
		x, err := a.l.Prepare(0)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.l.Prepare(0)
		if err != nil {
			t.Fatal(err)
		}
		if string(x.mine.name[:]) > string(y.mine.name[:]) {
			x, y = y, x
		}
		return x, y // x dials
	}
	small := memory(t, 4096)
	open := openFiles(t)
	t.Run("an unauthenticated process connects first", func(t *testing.T) {
		x, y := pair()
		for _, word := range []string{"", "hello", strings.Repeat("x", introBytes)} {
			conn, err := net.DialUnix("unixpacket", nil, y.mine.address())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte(word)); err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
		}
		over := make(chan error)
		go func() { over <- y.Connect(x.Offer()) }()
		if err := errors.Join(x.Connect(y.Offer()), <-over, x.Close(), y.Close()); err != nil {
			t.Error(err)
		}
	})
	for name, intro := range map[string]func(y *Endpoint, fd int) ([]byte, []int){
		"no descriptors": func(y *Endpoint, _ int) ([]byte, []int) {
			return binary.LittleEndian.AppendUint64(y.mine.secret[:], 1<<16), nil
		},
		"an odd size": func(y *Endpoint, fd int) ([]byte, []int) {
			return binary.LittleEndian.AppendUint64(y.mine.secret[:], 1<<16+1), []int{fd, fd}
		},
		"a huge size": func(y *Endpoint, fd int) ([]byte, []int) {
			return binary.LittleEndian.AppendUint64(y.mine.secret[:], 1<<63), []int{fd, fd}
		},
		"another size": func(y *Endpoint, fd int) ([]byte, []int) {
			return binary.LittleEndian.AppendUint64(y.mine.secret[:], uint64(segmentBytes(2*ringBytes))), []int{fd, fd}
		},
		"a board that is too small": func(y *Endpoint, fd int) ([]byte, []int) {
			return binary.LittleEndian.AppendUint64(y.mine.secret[:], uint64(segmentBytes(ringBytes))), []int{fd, small}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := pair()
			fd := memory(t, segmentBytes(ringBytes))
			conn, err := net.DialUnix("unixpacket", nil, y.mine.address())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			b, fds := intro(y, fd)
			var oob []byte
			if fds != nil {
				oob = unix.UnixRights(fds...)
			}
			if _, _, err := conn.WriteMsgUnix(b, oob, nil); err != nil {
				t.Fatal(err)
			}
			if err := y.Connect(x.Offer()); err == nil {
				t.Error("they have connected")
			}
			if err := errors.Join(x.Close(), y.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("another host", func(t *testing.T) {
		x, y := pair()
		y.mine.host[0]++
		if err := x.Connect(y.Offer()); !errors.Is(err, errOtherHost) {
			t.Errorf("got %v", err)
		}
		for _, raw := range [][]byte{nil, y.Offer()[:offerBytes-1], append(y.Offer(), 0), make([]byte, offerBytes)} {
			if err := x.Connect(raw); err == nil {
				t.Errorf("an offer of %d bytes was accepted", len(raw))
			}
		}
		if err := errors.Join(x.Close(), y.Close()); err != nil {
			t.Error(err)
		}
	})
	if n := openFiles(t); n != open {
		t.Errorf("%d descriptors are open, %d were before", n, open)
	}
}
