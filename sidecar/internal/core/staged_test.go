package core

import (
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// flushed lists the frames of a type that a Flush has posted.
func (x *manyPeers) flushed(t wire.Type) (list []wire.Header) {
	from := len(x.frames)
	for x.core.Flush(3, x) {
	}
	for _, f := range x.frames[from:] {
		if f.Head.Type == t {
			list = append(list, f.Head)
		}
	}
	return list
}

// TestChunksAreAskedBack: a receiver that has nothing to say acknowledges after 200 us, and
// a sender whose chunks are all under way would wait for that. So it asks, when less than
// half of them are left and the message goes on.
func TestChunksAreAskedBack(t *testing.T) {
	const chunk = 4096
	no, half := []bool{false, false, false, false}, []bool{false, false, true, true}
	for _, of := range []struct {
		chunks int
		tells  bool // the link does, of what has come
		want   []bool
	}{
		{4, false, no}, // that is all of it
		{8, false, half},
		{8, true, no},
	} {
		chunks, want := of.chunks, of.want
		x := newCrowd(t)
		x.core.LinkUp(1, 1, link.Caps{Name: "test", Delivers: of.tells})
		if err := acknowledge(x.core, &x.core.peers[1], 0); err != nil {
			t.Fatal(err)
		}
		d := arena(shm.OpSend, 2, 1, uint64(chunks)*chunk)
		d.Class = shm.ClassStaged
		x.submit(0, d)
		for i := range uint64(4) {
			k := shm.Descriptor{Op: shm.OpStage, Req: 1, Class: shm.ClassArena}
			k.SetBody(i*chunk, chunk, 0, 0)
			x.submit(0, k)
		}
		rts := x.flushed(wire.RTS)
		if len(rts) != 1 {
			t.Fatalf("%d announcements", len(rts))
		}
		body := wire.PullBody{Bytes: uint64(chunks) * chunk}
		var raw [wire.PullBytes]byte
		x.deliver(wire.Header{Type: wire.Pull, A: rts[0].B, B: 5 << 32, Length: uint32(body.Encode(raw[:]))}, raw[:])
		var asks []bool
		for _, h := range x.flushed(wire.Data) {
			asks = append(asks, h.Flags&wire.FlagAckNow != 0)
		}
		if !slices.Equal(asks, want) {
			t.Errorf("4 of %d chunks ask for an acknowledgement: %v, want %v", chunks, asks, want)
		}
	}
}

// TestLargeSlabSendsAskForTheirEnd: a slot of a small message can wait, while its
// application has its buffer back; who sends from a chunk has few of them.
func TestLargeSlabSendsAskForTheirEnd(t *testing.T) {
	for n, want := range map[uint64]bool{8 << 10: false, 32 << 10: true} {
		x := newCrowd(t)
		d := arena(shm.OpSend, 2, 1, n)
		d.Class = shm.ClassSlab
		x.submit(0, d)
		eager := x.flushed(wire.Eager)
		if len(eager) != 1 || (eager[0].Flags&wire.FlagAckNow != 0) != want {
			t.Errorf("%d bytes of the slab: %+v, want it to ask for an acknowledgement: %v", n, eager, want)
		}
	}
}
