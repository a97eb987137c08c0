package node

import (
	"bytes"
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// three returns one side and its two peers.
func three(t *testing.T) (a, b, c *side) {
	t.Helper()
	a, b, c = newSide(t, 3), newSide(t, 3), newSide(t, 3)
	joinAs(t, a, 1, b, 0)
	joinAs(t, a, 2, c, 0)
	t.Cleanup(func() {
		if err := errors.Join(a.l.Close(), b.l.Close(), c.l.Close()); err != nil {
			t.Error(err)
		}
	})
	return a, b, c
}

// reads starts a read of a whole new region of a peer.
func reads(t *testing.T, a *side, n link.Peer, from *side, token uint64, size int) (src, dst link.Ref) {
	t.Helper()
	src, dst = from.m.NewRegion(size), a.m.NewRegion(size)
	for i := range from.m.Bytes(src) {
		from.m.Bytes(src)[i] = byte(uint64(i)*7 + token)
	}
	k, err := from.l.Register(src)
	if err == nil {
		err = a.l.Read(n, token, dst, k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return src, dst
}

// TestEndOfOne checks that the end of a connection ends its own operations, before the
// end is reported, and no others.
func TestEndOfOne(t *testing.T) {
	for name, end := range map[string]func(l *Link){
		"forgotten": func(l *Link) { l.Forget(1) },
		"broken":    func(l *Link) { l.Break(1); l.checkSockets = true },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, c := three(t)
			s := &counting{mem: make([]byte, wire.FrameMax)}
			reads(t, a, 1, b, 1, 4<<20)
			src, dst := reads(t, a, 2, c, 2, 4<<20)
			a.l.Poll(s)
			end(a.l)
			for i := 0; len(s.dones) < 2 && i < 10_000; i++ {
				a.l.Poll(s)
			}
			if err := s.dones[1]; !errors.Is(err, link.ErrBroken) {
				t.Errorf("the broken one ended with %v, want ErrBroken", err)
			}
			if err, over := s.dones[2]; err != nil || !over || !bytes.Equal(a.m.Bytes(dst), c.m.Bytes(src)) {
				t.Errorf("the other one ended with %v, over: %v, or has other bytes", err, over)
			}
			if want := map[string]int{"broken": 1}[name]; len(s.downs) != want {
				t.Errorf("%d ends are reported, want %d", len(s.downs), want)
			}
			if in, _ := a.l.Bytes(); in < 4<<20 {
				t.Errorf("the link counts %d bytes", in)
			}
		})
	}
}

// TestReadsTakeTurns checks that a Poll moves a bounded part, and that small reads do not
// wait for large ones of other ranks.
func TestReadsTakeTurns(t *testing.T) {
	a, b, c := three(t)
	s := &counting{mem: make([]byte, wire.FrameMax)}
	reads(t, a, 1, b, 1, 64<<20)
	reads(t, a, 2, c, 2, 100_000)
	for range 2 {
		a.l.Poll(s)
	}
	if err, over := s.dones[2]; err != nil || !over {
		t.Errorf("the small one has ended: %v, %v", over, err)
	}
	if n := a.l.stats.BytesRead; n > 100_000 {
		t.Errorf("%d bytes are counted, of operations that have ended", n)
	}
	if op := a.l.ops.Turn(); op == nil || op.done > 2*pollReads {
		t.Errorf("the large read is at %+v", op)
	}
}
