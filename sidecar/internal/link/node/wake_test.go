package node

import (
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// sleepMax bounds a sleep: a side that is woken for every event never sleeps as long.
const sleepMax = 20_000 // ms

// sleeper is one side that sleeps whenever it has no work, as an engine does.
type sleeper struct {
	s     *side
	sink  *counting
	slept int
}

// counting counts the events of a link.
type counting struct {
	link.Sink
	mem    []byte
	frames int
	bytes  int
	downs  []error
	dones  map[uint64]error
}

func (c *counting) Deliver(_ link.Peer, h *wire.Header, _ []byte) error {
	c.frames++
	c.bytes += int(h.Length)
	return nil
}

func (c *counting) Place(_ link.Peer, h *wire.Header) ([]byte, error) {
	c.bytes += int(h.Length)
	return c.mem[:h.Length], nil
}

func (c *counting) String() string {
	return fmt.Sprintf("%d frames of %d bytes, ends %v", c.frames, c.bytes, c.downs)
}

func (c *counting) Placed(link.Peer) error { c.frames++; return nil }

func (c *counting) Done(_ link.Peer, token uint64, err error) {
	if c.dones == nil {
		c.dones = map[uint64]error{}
	}
	c.dones[token] = err
}

func (c *counting) Down(_ link.Peer, err error) { c.downs = append(c.downs, err) }

// until polls and sleeps until over returns true.
func (x *sleeper) until(over func() bool) error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(ep)
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, x.s.l.FD(), &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return err
	}
	for !over() {
		if x.s.l.Poll(x.sink) > 0 || len(x.sink.downs) > 0 || x.s.l.Arm() {
			if len(x.sink.downs) > 0 {
				return x.sink.downs[0]
			}
			continue
		}
		x.slept++
		var ev [1]unix.EpollEvent
		if n, err := unix.EpollWait(ep, ev[:], sleepMax); err == nil && n == 0 {
			return fmt.Errorf("it was not woken: %v", x.sink)
		}
	}
	return nil
}

// TestWakes checks that two sides that sleep whenever they have no work are woken for
// each frame, and for room in a full ring, whichever side is ahead.
func TestWakes(t *testing.T) {
	for _, x := range []struct {
		name                 string
		bytes, count, window int
		byReference          bool // the peer reads the payload in its memory
	}{
		{"one small frame at a time", 8, 20_000, 1, false},
		{"small frames, more than the ring takes", 2000, 20_000, 1 << 20, false},
		{"large frames in the ring", 100_000, 500, 1 << 20, false},
		{"one large frame at a time", 20_000, 5000, 1, false},
		{"large frames by reference", 100_000, 2000, 1 << 20, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			a, b := newSide(t, somePeers+1), newSide(t, somePeers+1)
			defer func() { _, _ = a.l.Close(), b.l.Close() }()
			join(t, a, b)
			from, to := &sleeper{s: a, sink: &counting{mem: make([]byte, wire.FrameMax)}}, &sleeper{s: b, sink: &counting{mem: make([]byte, wire.FrameMax)}}
			var got atomic.Int64
			f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: uint32(x.bytes)}, Payload: a.m.NewRegion(x.bytes)}
			if !x.byReference {
				a.l.DropRegion(f.Payload.Region) // the payload then goes through the ring
			}
			ack := &link.Frame{Head: wire.Header{Type: wire.Heartbeat}}
			over := make(chan error, 1)
			go func() {
				over <- to.until(func() bool {
					if n := int64(to.sink.frames); n > got.Load() {
						got.Store(n)
						b.l.Post(0, []*link.Frame{ack}) // wakes the other side if it waits for the frame
					}
					return to.sink.frames == x.count
				})
			}()
			sent := 0
			err := from.until(func() bool {
				for sent < x.count && sent-int(got.Load()) < x.window && a.l.Post(0, []*link.Frame{f}) == 1 {
					sent++
				}
				return int(got.Load()) == x.count
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := <-over; err != nil {
				t.Fatal(err)
			}
			t.Logf("slept %d and %d times, for %d frames", from.slept, to.slept, x.count)
		})
	}
}
