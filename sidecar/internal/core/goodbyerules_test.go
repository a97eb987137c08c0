package core

import (
	"errors"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// breaks delivers a frame that no correct peer sends, ends the connection with its error as a link
// does, and returns the reason of the job's failure.
func (x *manyPeers) breaks(h wire.Header, payload []byte) string {
	x.t.Helper()
	if h.Seq == 0 {
		h.Seq = x.seq + 1
	}
	err := x.core.Deliver(2, 1, &h, payload)
	if !errors.Is(err, link.ErrProtocol) {
		x.t.Fatalf("%v: %v, want a violation of the protocol", h.Type, err)
	}
	x.core.LinkDown(3, 1, err)
	if x.core.fail == nil {
		x.t.Fatalf("%v: %v, and the job has not failed", h.Type, err)
	}
	return x.core.fail.Reason
}

// TestNothingFollowsAGoodbye checks the rules of goodbyes (P§7): a rank leaves once, sends no message
// afterwards, and has received no frame that was not sent.
func TestNothingFollowsAGoodbye(t *testing.T) {
	rts := make([]byte, wire.RTSBytes)
	eager := wire.Header{Type: wire.Eager, Src: 2, Context: 9, A: 8, Length: 8}
	for name, c := range map[string]struct {
		goodbye wire.Type // 0: none
		next    wire.Header
		payload []byte
		want    string
	}{
		"Left twice":        {wire.Left, wire.Header{Type: wire.Left, Src: 2}, nil, "rank 2 of pod 1 leaves a second time"},
		"Left after Bye":    {wire.Bye, wire.Header{Type: wire.Left, Src: 3}, nil, "rank 3 of pod 1 leaves a second time"},
		"Eager after Left":  {wire.Left, eager, make([]byte, 8), "eager of rank 2 of pod 1, which has left"},
		"Eager after Bye":   {wire.Bye, eager, make([]byte, 8), "eager of rank 2 of pod 1, which has left"},
		"RTS after Left":    {wire.Left, wire.Header{Type: wire.RTS, Src: 2, Context: 9, A: 1 << 20, B: 5 << 32, Length: wire.RTSBytes}, rts, "rts of rank 2 of pod 1, which has left"},
		"future in Left":    {0, wire.Header{Type: wire.Left, Src: 2, A: 1000}, nil, "left: peer broke the protocol: acknowledges frame 999"},
		"future in Bye":     {0, wire.Header{Type: wire.Bye, A: 1000}, nil, "bye: peer broke the protocol: acknowledges frame 999"},
		"frame of future":   {0, wire.Header{Type: wire.Left, Src: 2, Seq: 1000}, nil, "frame 1000 follows frame"},
		"acknowledges more": {0, wire.Header{Type: wire.Left, Src: 2, Ack: 1000}, nil, "acknowledges frame 1000 of"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newCrowd(t)
			if c.goodbye != 0 {
				x.deliver(wire.Header{Type: c.goodbye, Src: 2}, nil)
				if x.core.peers[1].Gone() { // the reason of a peer that has left is not the job's: only the error counts
					h := c.next
					h.Seq = x.seq + 1
					if err := x.core.Deliver(2, 1, &h, c.payload); !errors.Is(err, link.ErrProtocol) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("%v, want one with %q", err, c.want)
					}
					return
				}
			}
			if got := x.breaks(c.next, c.payload); !strings.Contains(got, "pod 1") || !strings.Contains(got, "ranks 2-3") || !strings.Contains(got, c.want) {
				t.Errorf("the job has failed with %q, want pod, ranks and %q", got, c.want)
			}
		})
	}
}

// TestOthersMayTalkOn checks that the goodbye of a rank concerns no other rank of its pod.
func TestOthersMayTalkOn(t *testing.T) {
	x := newCrowd(t)
	x.deliver(wire.Header{Type: wire.Left, Src: 2}, nil)
	x.deliver(wire.Header{Type: wire.Eager, Src: 3, Context: 9, A: 8, Length: 8}, make([]byte, 8))
	x.deliver(wire.Header{Type: wire.Left, Src: 3}, nil)
}

// TestOfferOfTheFuture checks that an offer cannot name a frame that was not sent.
func TestOfferOfTheFuture(t *testing.T) {
	x := newCrowd(t)
	body := wire.ReadyBody{Key: 1, Seq: 1000}
	var raw [wire.ReadyBytes]byte
	h := wire.Header{Type: wire.Ready, Src: 2, Context: 9, A: 8, B: 1 << 20, Length: wire.ReadyBytes}
	body.Encode(raw[:])
	if got, want := x.breaks(h, raw[:]), "acknowledges frame 1000 of"; !strings.Contains(got, want) {
		t.Errorf("the job has failed with %q, want %q", got, want)
	}
}

// TestEarlyGoodbyes checks the same rules for a peer whose ranks are in a later generation.
func TestEarlyGoodbyes(t *testing.T) {
	for name, next := range map[string]wire.Header{
		"Left twice":       {Type: wire.Left, Src: 2},
		"Eager after Left": {Type: wire.Eager, Src: 2, Context: 9, A: 8, Length: 8},
	} {
		x := newCrowd(t)
		x.deliver(wire.Header{Type: wire.Again, Src: 2, B: 2}, nil)
		x.deliver(wire.Header{Type: wire.Left, Src: 2}, nil)
		if err := x.core.Deliver(2, 1, &wire.Header{Type: next.Type, Seq: x.seq + 1, Src: next.Src, Context: next.Context, A: next.A, Length: next.Length}, make([]byte, next.Length)); !errors.Is(err, link.ErrProtocol) || !strings.Contains(err.Error(), "rank 2 of pod 1") {
			t.Errorf("%s: %v, want a violation of rank 2", name, err)
		}
	}
}

// TestNothingFollowsLeft detaches a rank with many open requests and a collective under way: the
// collective sends nothing after the goodbye of the rank, for which the peer would end the job.
func TestNothingFollowsLeft(t *testing.T) {
	x := newCrowd(t)
	for i := range uint32(1100) {
		d := shm.Descriptor{Op: shm.OpRecv, Req: i, Class: shm.ClassInline, InlineLen: 8, Peer: 0, Tag: 7}
		x.submit(1, d)
	}
	b := shm.CollBlock{Kind: shm.CollBcast, Root: 1, Count: 512 << 10, Elem: 1, OutBytes: 512 << 10, Algorithm: 2}
	slab := x.core.ports.Bytes(link.Ref{Region: RegionFirst + 2, Len: shm.CollBlockBytes})
	b.Encode(slab)
	d := shm.Descriptor{Op: shm.OpColl, Req: 1500, Class: shm.ClassSlab}
	d.SetBody(0, shm.CollBlockBytes, 0, 0)
	x.submit(1, d)
	x.core.Flush(2, x)
	var id uint64
	for _, f := range x.frames {
		if f.Head.Type == wire.RTS {
			id = f.Head.B
		}
	}
	x.frames = nil
	x.submit(1, shm.Descriptor{Op: shm.OpDetach})
	// A message for the rank that has just left: its sender is told at once.
	x.deliver(wire.Header{Type: wire.Eager, Src: 2, Dst: 1, A: 8, Length: 8}, make([]byte, 8))
	// The receiver of the first part of the broadcast has it.
	x.deliver(wire.Header{Type: wire.Fin, Src: 3, A: id}, nil)
	x.core.Flush(2, x)
	if id == 0 {
		t.Fatal("the broadcast has sent nothing")
	}
	left := false
	for _, f := range x.frames {
		if f.Head.Type == wire.Left && f.Head.Src == 1 {
			left = true
		} else if left && f.Head.Src == 1 && (f.Head.Type == wire.RTS || f.Head.Type == wire.Eager) {
			t.Errorf("%v of rank 1 follows its Left: the peer ends the job", f.Head.Type)
		}
	}
	if !left {
		t.Error("the rank has not said goodbye")
	}
}
