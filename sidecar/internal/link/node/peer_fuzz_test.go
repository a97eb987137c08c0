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

// script hands out a story's bytes; after its end there are zeros.
type script []byte

func (s *script) next() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *script) take(n int) []byte {
	b := make([]byte, n)
	*s = (*s)[copy(b, *s):]
	return b
}

// small is one of the numbers that are worth a try: around 0, sizes and bounds.
func (s *script) small() uint64 {
	list := [...]uint64{0, 1, 63, 64, 4095, wholeMax, wholeMax + 1, 8192, 1 << 16, wire.FrameMax, wire.FrameMax + 1, ringMany, 1 << 32, 1 << 63, ^uint64(0), ^uint64(0) - 4095}
	return list[s.next()%byte(len(list))] + uint64(int8(s.next()))
}

// storySteps bounds a story.
const storySteps = 64

// FuzzPeer: a peer that does as it likes with the ring, the words and the socket that it
// shares: this side reads what is in bounds, or ends the connection once, by one error,
// and nothing of it stays open.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{3, 1, 2, 7, 0, 1, 0, 0})                   // a region, and a frame of 8 KiB of it
	f.Add([]byte{3, 1, 2, 7, 0, 1, 8, 0, 4, 1})             // one that ends beyond it
	f.Add([]byte{1, 9, 1, 0, 3, 1, 1, 1})                   // a header, and what belongs to it
	f.Add([]byte{0, 200, 5, 24, 6, 12, 0, 7, 0, 1})         // noise, and positions
	f.Add([]byte{9, 8, 9, 8, 8, 1, 7, 0, 0, 10, 9, 63, 11}) // frames for it, of which it has read some
	shared, mem, err := segment.Create("story", 1<<16)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = unix.Close(shared); _ = segment.Unmap(mem) }) // the test is over
	f.Fuzz(func(t *testing.T, story []byte) {
		open := openFiles(t)
		a, b := newSide(t, somePeers+1), newSide(t, somePeers+1)
		join(t, a, b)
		foe := a.l.conns[0]
		own := b.m.NewRegion(1 << 16)
		sink := &counting{mem: make([]byte, wire.FrameMax)}
		s := script(story)
		for n := 0; n < storySteps && len(s) > 0 && b.l.conns[0] != nil; n++ {
			act(foe, b, own, &s, shared)
			b.l.look = true
			b.l.Poll(sink)
		}
		for range 4 * lookEvery {
			b.l.look = true
			b.l.Poll(sink)
		}
		if len(sink.downs) > 1 || (len(sink.downs) == 1) != (b.l.conns[0] == nil) {
			t.Errorf("the link told of %d ends; the connection is there: %v", len(sink.downs), b.l.conns[0] != nil)
		}
		_ = a.l.Close() // it may have broken what it shared
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

// act does one step of a story.
func act(foe *conn, b *side, own link.Ref, s *script, shared int) {
	say := func(raw []byte, fds ...int) {
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		_ = unix.Sendmsg(foe.local, raw, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) // a full socket, or an ended one, is a story too
	}
	write := func(raw []byte) {
		foe.out.put(raw)
		foe.out.mine.Store(foe.out.at)
	}
	switch s.next() % 12 {
	case 0:
		write(s.take(int(s.next())))
	case 1:
		raw := make([]byte, wire.HeaderBytes)
		h := wire.Header{Type: wire.Type(s.next()), Seq: uint64(s.next()), Ack: uint64(s.next() & 1), Length: uint32(s.small())}
		h.Encode((*[wire.HeaderBytes]byte)(raw))
		write(append(raw, s.take(64*int(s.next()))...))
	case 2:
		write(frame(uint32(s.small()), uint64(s.next()&3), s.small()))
	case 3:
		say(word24Of(wordHere, link.Region(s.next()&3), 0, 1<<16), shared)
	case 4:
		say(word24Of(wordGone, link.Region(s.next()&3), 0, 0))
	case 5:
		say(s.take(int(s.next() & 31)))
	case 6:
		foe.out.mine.Store(s.small())
	case 7:
		foe.in.mine.Store(s.small())
	case 8:
		flags := []interface{ Store(uint64) }{foe.out.said, foe.out.waits, foe.out.sleep, foe.in.said, foe.in.waits, foe.in.sleep}
		flags[s.next()%6].Store(s.small())
	case 9:
		n := 1024 * int(s.next()&63)
		b.l.Post(0, []*link.Frame{{Head: wire.Header{Type: wire.Data, Length: uint32(n)}, Payload: own.Slice(0, uint64(n))}})
	case 10:
		foe.in.mine.Store(foe.in.other.Load()) // it has read everything
	case 11:
		say(word24Of(uint32(s.next()), link.Region(binary.LittleEndian.Uint32(s.take(4))), s.small(), s.small()), shared)
	}
}
