package core

import (
	"errors"
	"runtime"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A peer with a valid certificate that asks on and on is cut off, each time
// before it has made the sidecar keep much.
func TestBoundsOfAPeer(t *testing.T) {
	for name, x := range map[string]struct {
		frame   wire.Header
		payload []byte
		most    int // frames until it is cut off
		inUse   int // bytes a frame may make the sidecar keep
	}{
		"empty eager messages":        {wire.Header{Type: wire.Eager, Src: 1, Context: 5}, nil, 4097, 400},
		"eager messages of 64 KiB":    {wire.Header{Type: wire.Eager, Src: 1, Context: 5, A: 64 << 10, Length: 64 << 10}, make([]byte, 64<<10), 17, 512 << 10},
		"announcements":               {wire.Header{Type: wire.RTS, Src: 1, Context: 5, A: 1 << 30, B: 1, Length: wire.RTSBytes}, make([]byte, wire.RTSBytes), 4*shm.MaxRequests + 1, 500},
		"gets":                        {wire.Header{Type: wire.Get, Src: 1, Context: 9, B: 4096, A: 1}, nil, getWindow + 1, 4000},
		"gets of nothing":             {wire.Header{Type: wire.Get, Src: 1, Context: 9, A: 1}, nil, 1, 4000},
		"locks":                       {wire.Header{Type: wire.Lock, Src: 1, Context: 9, A: 1, B: 1}, nil, lockLimit + 2, 200},
		"flushes without an end":      {wire.Header{Type: wire.Flush, Src: 1, Context: 9, A: 1}, nil, answerLimit + 2, 500},
		"fetches without an end":      {wire.Header{Type: wire.Fetch, Src: 1, Context: 9, A: 1, B: uint64(shm.TypeUint64)<<8 | uint64(shm.ReduceSum), Length: 8}, make([]byte, 8), answerLimit + 2, 500},
		"pulls of what has ended":     {wire.Header{Type: wire.Pull, Src: 1, A: 77, B: 1, Length: wire.PullBytes}, make([]byte, wire.PullBytes), answerLimit + 2, 500},
		"synchronous to the departed": {wire.Header{Type: wire.Retract, Src: 1, A: 1}, nil, answerLimit + 2, 500},
	} {
		t.Run(name, func(t *testing.T) {
			s := exposing(t)
			s.ports.Bytes(link.Ref{Region: RegionFirst + 1})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			n, err := 0, error(nil)
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

// A receiver that never asks for more than one part at a time, but for all of
// them at once, is bounded, too.
func TestBoundOfPulls(t *testing.T) {
	s := exposing(t)
	d := shm.Descriptor{Op: shm.OpSend, Class: shm.ClassArena, Req: 1, Peer: 1}
	d.SetBody(0, 1<<20, 0, 0)
	if err := s.core.Submit(2, 0, &d); err != nil {
		t.Fatal(err)
	}
	id := s.core.sessions[0].requests[1].id
	var err error
	n := uint64(0)
	for ; err == nil && n < 2*chunkLimit; n++ {
		var b [wire.PullBytes]byte
		body := wire.PullBody{Offset: 64 * n, Bytes: 64}
		h := wire.Header{Type: wire.Pull, Seq: n + 1, Src: 1, A: id, B: 9, Length: uint32(body.Encode(b[:]))}
		err = s.core.Deliver(2, 1, &h, b[:])
	}
	if !errors.Is(err, link.ErrProtocol) || n > chunkLimit+3 {
		t.Errorf("after %d pulls: %v", n, err)
	}
}

// Silent sends have no request number, and a bound all the same.
func TestBoundOfSilentSends(t *testing.T) {
	s := exposing(t)
	d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 1}
	d.SetInline([]byte("12345678"))
	var err error
	n := 0
	for ; err == nil && n < 3*silentLimit; n++ {
		err = s.core.Submit(2, 0, &d)
	}
	// Those that credit lets through are over at once.
	if err == nil || n > silentLimit+4096+1 {
		t.Errorf("after %d silent sends: %v", n, err)
	}
}
