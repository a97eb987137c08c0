package core

import (
	"errors"
	"runtime"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestBoundsOfAPeer checks that a peer with a valid certificate that sends requests without
// end is disconnected before the sidecar has allocated much memory for it.
func TestBoundsOfAPeer(t *testing.T) {
	for name, x := range map[string]struct {
		frame   wire.Header
		payload []byte
		most    int // frames until it is disconnected
		inUse   int // bytes that a frame may make the sidecar allocate
	}{
		"empty eager messages":        {wire.Header{Type: wire.Eager, Src: 1, Context: 5}, nil, 4097, 400},
		"eager messages of 64 KiB":    {wire.Header{Type: wire.Eager, Src: 1, Context: 5, A: 64 << 10, Length: 64 << 10}, make([]byte, 64<<10), 17, 512 << 10},
		"announcements":               {wire.Header{Type: wire.RTS, Src: 1, Context: 5, A: 1 << 30, B: 1, Length: wire.RTSBytes}, make([]byte, wire.RTSBytes), 4*shm.MaxRequests + 1, 500},
		"gets":                        {wire.Header{Type: wire.Get, Src: 1, Context: 9, B: 4096, A: 1}, nil, onesided.GetWindow + 1, 4000},
		"gets of nothing":             {wire.Header{Type: wire.Get, Src: 1, Context: 9, A: 1}, nil, 1, 4000},
		"locks":                       {wire.Header{Type: wire.Lock, Src: 1, Context: 9, A: 1, B: 1}, nil, onesided.LockLimit + 2, 200},
		"flushes without an end":      {wire.Header{Type: wire.Flush, Src: 1, Context: 9, A: 1}, nil, channel.AnswerLimit + 2, 500},
		"fetches without an end":      {wire.Header{Type: wire.Fetch, Src: 1, Context: 9, A: 1, B: uint64(shm.TypeUint64)<<8 | uint64(shm.ReduceSum), Length: 8}, make([]byte, 8), channel.AnswerLimit + 2, 500},
		"pulls of what has ended":     {wire.Header{Type: wire.Pull, Src: 1, A: 77, B: 1, Length: wire.PullBytes}, make([]byte, wire.PullBytes), channel.AnswerLimit + 2, 500},
		"synchronous to the departed": {wire.Header{Type: wire.Retract, Src: 1, A: 1}, nil, channel.AnswerLimit + 2, 500},
	} {
		t.Run(name, func(t *testing.T) {
			s := exposing(t)
			s.ports.Bytes(link.Ref{Region: RegionFirst + 1})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			n, err := 0, error(nil)
			if x.frame.Type == wire.Pull {
				x.frame.A = s.ended()
			}
			for err == nil && n <= 2*x.most {
				n++
				h := x.frame
				h.Seq = uint64(n)
				err = s.core.Deliver(2, 1, &h, x.payload)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if !errors.Is(err, link.ErrProtocol) || n > x.most {
				t.Fatalf("after %d frames: %v, want a violation at %d", n, err, x.most)
			}
			if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > int64(x.inUse*n)+4<<20 {
				t.Errorf("%d frames made the sidecar keep %d bytes", n, kept)
			}
			runtime.KeepAlive(s)
		})
	}
}

// TestBoundOfPulls checks that a receiver that requests one part at a time, but the part of
// every message at once, is bounded as well.
func TestBoundOfPulls(t *testing.T) {
	s := exposing(t)
	d := shm.Descriptor{Op: shm.OpSend, Class: shm.ClassArena, Req: 1, Peer: 1}
	d.SetBody(0, 1<<20, 0, 0)
	if err := s.core.Submit(2, 0, &d); err != nil {
		t.Fatal(err)
	}
	id := s.core.sessions[0].Request(1).ID
	var err error
	n := uint64(0)
	for ; err == nil && n < 2*p2p.ChunkLimit; n++ {
		var b [wire.PullBytes]byte
		body := wire.PullBody{Offset: 64 * n, Bytes: 64}
		h := wire.Header{Type: wire.Pull, Seq: n + 1, Src: 1, A: id, B: 9, Length: uint32(body.Encode(b[:]))}
		err = s.core.Deliver(2, 1, &h, b[:])
	}
	if !errors.Is(err, link.ErrProtocol) || n > p2p.ChunkLimit+3 {
		t.Errorf("after %d pulls: %v", n, err)
	}
}

// TestBoundOfSilentSends checks that the number of silent sends is bounded, although they have
// no request numbers.
func TestBoundOfSilentSends(t *testing.T) {
	s := exposing(t)
	d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 1}
	d.SetInline([]byte("12345678"))
	var err error
	n := 0
	for ; err == nil && n < 3*p2p.SilentLimit; n++ {
		err = s.core.Submit(2, 0, &d)
	}
	// Sends within the credit end at once.
	if err == nil || n > p2p.SilentLimit+4096+1 {
		t.Errorf("after %d silent sends: %v", n, err)
	}
}

// ended returns the number of a send that has ended.
func (s *story) ended() uint64 {
	s.t.Helper()
	d := shm.Descriptor{Op: shm.OpSend, Class: shm.ClassArena, Req: 9, Peer: 1}
	d.SetBody(0, 1<<20, 0, 0)
	if err := s.core.Submit(2, 0, &d); err != nil {
		s.t.Fatal(err)
	}
	id := s.core.sessions[0].Request(9).ID
	s.core.p2p.EndRequest(0, 9, false)
	return id
}

// TestRequestsThatThereNeverWere checks that a frame that names a request that never existed
// is a protocol violation, while a frame that names a request that has ended is not: it may be
// late (P§6).
func TestRequestsThatThereNeverWere(t *testing.T) {
	for name, x := range map[string]struct {
		frame   wire.Header
		payload []byte
	}{
		"pull":      {wire.Header{Type: wire.Pull, Length: wire.PullBytes}, make([]byte, wire.PullBytes)},
		"data":      {wire.Header{Type: wire.Data, Length: 8}, make([]byte, 8)},
		"fin":       {wire.Header{Type: wire.Fin}, nil},
		"matched":   {wire.Header{Type: wire.Matched}, nil},
		"written":   {wire.Header{Type: wire.Written}, nil},
		"ended":     {wire.Header{Type: wire.Ended, B: 3}, nil},
		"retracted": {wire.Header{Type: wire.Retracted}, nil},
		"got":       {wire.Header{Type: wire.Got, Length: 8}, make([]byte, 8)},
		"fetched":   {wire.Header{Type: wire.Fetched, Length: 8}, make([]byte, 8)},
		"locked":    {wire.Header{Type: wire.Locked}, nil},
		"flushed":   {wire.Header{Type: wire.Flushed}, nil},
	} {
		for _, id := range []uint64{0, 77, 1<<32 | 5000, 3<<32 | 1} {
			s := exposing(t)
			h := x.frame
			h.Seq, h.Src, h.A = 1, 1, id
			if err := s.core.Deliver(2, 1, &h, x.payload); !errors.Is(err, link.ErrProtocol) {
				t.Errorf("%s for %#x: got %v, want a violation", name, id, err)
			}
		}
	}
	s := exposing(t)
	h := wire.Header{Type: wire.Fin, Seq: 1, Src: 1, A: s.ended()}
	if err := s.core.Deliver(2, 1, &h, nil); err != nil {
		t.Errorf("fin for a send that has ended: %v", err)
	}
}

// TestDescriptorsThatCannotBeMeant checks that a session ends with each descriptor for which
// LAYOUT says so.
func TestDescriptorsThatCannotBeMeant(t *testing.T) {
	inline := func(d shm.Descriptor) shm.Descriptor {
		d.SetInline([]byte("12345678"))
		return d
	}
	for name, list := range map[string][]shm.Descriptor{
		"all flags on a send":         {inline(shm.Descriptor{Op: shm.OpSend, Peer: 1, Flags: 0xff})},
		"swap on a send":              {inline(shm.Descriptor{Op: shm.OpSend, Peer: 1, Flags: shm.FlagSwap})},
		"now on a receive":            {{Op: shm.OpRecv, Peer: 1, Class: shm.ClassInline, Flags: shm.FlagNow}},
		"exclusive on a flush":        {{Op: shm.OpFlush, Peer: 1, Flags: shm.FlagExclusive}},
		"context 2^31 of a send":      {inline(shm.Descriptor{Op: shm.OpSend, Peer: 1, Context: 1 << 31})},
		"context 2^31 of a receive":   {{Op: shm.OpRecv, Peer: 1, Class: shm.ClassInline, Context: 1 << 31}},
		"context 2^31 of a probe":     {{Op: shm.OpProbe, Peer: 1, Context: 1 << 31}},
		"context 2^31 of a window":    {{Op: shm.OpWin, Context: 1 << 31}},
		"a stage on a waiting probe":  {{Op: shm.OpProbe, Peer: 1, Req: 4}, arena(shm.OpStage, 0, 4, 64)},
		"a stage on a plain receive":  {arena(shm.OpRecv, 1, 4, 64), arena(shm.OpStage, 0, 4, 64)},
		"reduced on a receive":        {arena(shm.OpRecv, 1, 4, 64), {Op: shm.OpReduced, Req: 4}},
		"an unknown operation":        {{Op: 99}},
		"an unknown class":            {{Op: shm.OpRecv, Peer: 1, Class: 9}},
		"a request number in use":     {arena(shm.OpRecv, 1, 4, 64), arena(shm.OpRecv, 1, 4, 64)},
		"a request number too large":  {arena(shm.OpRecv, 1, shm.MaxRequests, 64)},
		"an unknown handle":           {{Op: shm.OpDrop}},
		"a rank that there is not":    {inline(shm.Descriptor{Op: shm.OpSend, Peer: 3})},
		"a window that there is not":  {{Op: shm.OpWinFree, Context: 77}},
		"a silent synchronous send":   {inline(shm.Descriptor{Op: shm.OpSend, Peer: 1, Flags: shm.FlagSilent | shm.FlagSync})},
		"sync and a reply wanted":     {{Op: shm.OpSend, Peer: 1, Class: shm.ClassInline, Flags: shm.FlagSync | shm.FlagReply}},
		"data and a reply wanted":     {{Op: shm.OpSend, Peer: 1, Class: shm.ClassInline, Flags: shm.FlagData | shm.FlagReply}},
		"memory outside of the arena": {arena(shm.OpSend, 1, 4, 2<<20)},
	} {
		s := exposing(t)
		var err error
		for i := range list {
			if err != nil {
				t.Errorf("%s: refused too early: %v", name, err)
			}
			if list[i].Context == 9 && list[i].Op != shm.OpFlush {
				list[i].Context = 0
			}
			err = s.core.Submit(2, 0, &list[i])
		}
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	// Descriptors that may be late have no effect.
	s := exposing(t)
	for _, d := range []shm.Descriptor{{Op: shm.OpCancel, Req: 7}, {Op: shm.OpReduced, Req: 7}} {
		if err := s.core.Submit(2, 0, &d); err != nil {
			t.Errorf("operation %d on a request that is not open: %v", d.Op, err)
		}
	}
}

// TestRefusalsAreNoAnswers: a rank leaves while its peer's ranks have announced as many
// messages to it as they may. The refusals of these messages do not count as answers to the
// peer's requests.
func TestRefusalsAreNoAnswers(t *testing.T) {
	const many = 3
	ports := &lone{regions: map[link.Region][]byte{}}
	c, err := New(Config{PodOf: []int32{0, 1, 1, 1}, Pods: 2}, ports)
	if err == nil {
		err = c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 4096}, link.Ref{Region: RegionFirst + 1, Len: 4096})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.LinkUp(1, 1, link.Caps{Name: "test"})
	if err := c.Deliver(1, 1, &wire.Header{Type: wire.Ack, Credit: c.peers[1].Credit().Granted()}, nil); err != nil {
		t.Fatal(err)
	}
	c.ofPeers = ranks.NewAllowance(1<<40, 0) // this test is not of this bound
	n := uint64(0)
	announce := func() error {
		n++
		h := wire.Header{Type: wire.RTS, Seq: n, Src: 1 + uint32(n%many), Context: 5, A: 1 << 30, B: n, Length: wire.RTSBytes}
		return c.Deliver(1, 1, &h, make([]byte, wire.RTSBytes))
	}
	for n <= channel.AnswerLimit {
		if err := announce(); err != nil {
			t.Fatal(err)
		}
	}
	c.Detach(2, 0, nil)
	for c.Advance(2) > 0 {
	}
	if told := c.peers[1].Out().Last(); told <= channel.AnswerLimit {
		t.Fatalf("%d frames tell of the end of %d messages", told, n)
	}
	if err := announce(); err != nil {
		t.Errorf("the peer's next frame: %v", err)
	}
}
