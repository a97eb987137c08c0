package node

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// script returns the bytes of a story one by one; after its end it returns zeros.
type script []byte

func (s *script) next() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *script) bytes(n int) []byte {
	b := make([]byte, n)
	*s = (*s)[copy(b, *s):]
	return b
}

// small returns a number near 0, a size or a bound.
func (s *script) small() uint64 {
	list := [...]uint64{0, 1, 63, 64, 4095, wholeMax, wholeMax + 1, 8192, 1 << 16, wire.FrameMax, wire.FrameMax + 1, ringMany, 1 << 32, 1 << 63, ^uint64(0), ^uint64(0) - 4095}
	return list[s.next()%byte(len(list))] + uint64(int8(s.next()))
}

// storySteps bounds a story, so that one input takes milliseconds.
const storySteps = 64

// FuzzPeer runs a peer that does as it likes with the ring, the flags and the socket that
// it shares. This side must read within bounds, or end the connection once, with one
// error, and leave nothing of it open.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{3, 1, 2, 7, 0, 1, 0, 0})                   // a region, and a frame of 8 KiB in it
	f.Add([]byte{3, 1, 2, 7, 0, 1, 8, 0, 4, 1})             // a frame that ends beyond it
	f.Add([]byte{1, 9, 1, 0, 3, 1, 1, 1})                   // a header and its payload
	f.Add([]byte{0, 200, 5, 24, 6, 12, 0, 7, 0, 1})         // noise, and positions
	f.Add([]byte{9, 8, 9, 8, 8, 1, 7, 0, 0, 10, 9, 63, 11}) // frames for the peer, some of them read
	shared, mem, err := segment.Create("story", 1<<16)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = unix.Close(shared); _ = segment.Unmap(mem) }) // the test is over
	f.Fuzz(func(t *testing.T, story []byte) {
		open := openFiles(t)
		a, b := newSide(t, somePeers+1), newSide(t, somePeers+1)
		join(t, a, b)
		hostile := a.l.conns[0]
		own := b.m.NewRegion(1 << 16)
		sink := &counting{mem: make([]byte, wire.FrameMax)}
		s := script(story)
		for n := 0; n < storySteps && len(s) > 0 && b.l.conns[0] != nil; n++ {
			act(hostile, b, own, &s, shared)
			b.l.checkSockets = true
			b.l.Poll(sink)
		}
		for range 4 * socketPollInterval {
			b.l.checkSockets = true
			b.l.Poll(sink)
		}
		if len(sink.downs) > 1 || (len(sink.downs) == 1) != (b.l.conns[0] == nil) {
			t.Errorf("the link reported %d ends; the connection exists: %v", len(sink.downs), b.l.conns[0] != nil)
		}
		_ = a.l.Close() // its memory may be inconsistent
		if err := b.l.Close(); err != nil {
			t.Error(err)
		}
		for end := time.Now().Add(10 * time.Second); openFiles(t) > open; time.Sleep(100 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("%d descriptors are open, %d were", openFiles(t), open)
			}
		}
	})
}

// act executes one step of a story.
func act(hostile *conn, b *side, own link.Ref, s *script, shared int) {
	say := func(raw []byte, fds ...int) {
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		_ = unix.Sendmsg(hostile.local, raw, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) // a full or closed socket is part of a story, too
	}
	write := func(raw []byte) {
		hostile.out.put(raw)
		hostile.out.mine.Store(hostile.out.at)
	}
	switch s.next() % 12 {
	case 0:
		write(s.bytes(int(s.next())))
	case 1:
		raw := make([]byte, wire.HeaderBytes)
		h := wire.Header{Type: wire.Type(s.next()), Seq: uint64(s.next()), Ack: uint64(s.next() & 1), Length: uint32(s.small())}
		h.Encode((*[wire.HeaderBytes]byte)(raw))
		write(append(raw, s.bytes(64*int(s.next()))...))
	case 2:
		write(frame(uint32(s.small()), uint64(s.next()&3), s.small()))
	case 3:
		say(controlMessage(controlHere, link.Region(s.next()&3), 0, 1<<16), shared)
	case 4:
		say(controlMessage(controlGone, link.Region(s.next()&3), 0, 0))
	case 5:
		say(s.bytes(int(s.next() & 31)))
	case 6:
		hostile.out.mine.Store(s.small())
	case 7:
		hostile.in.mine.Store(s.small())
	case 8:
		flags := []interface{ Store(uint64) }{hostile.out.controls, hostile.out.waits, hostile.out.sleep, hostile.in.controls, hostile.in.waits, hostile.in.sleep}
		flags[s.next()%6].Store(s.small())
	case 9:
		n := 1024 * int(s.next()&63)
		b.l.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Length: uint32(n)}, Payload: own.Slice(0, uint64(n))}})
	case 10:
		hostile.in.mine.Store(hostile.in.other.Load()) // the peer has read everything
	case 11:
		say(controlMessage(uint32(s.next()), link.Region(binary.LittleEndian.Uint32(s.bytes(4))), s.small(), s.small()), shared)
	}
}
