package core

import (
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// flushed returns the frames of a type that Flush posts.
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

// TestChunksAreAskedBack: a receiver without frames of its own acknowledges after 200 us, and
// a sender whose chunks are all in flight would wait for that. The sender therefore asks for
// an acknowledgement when less than half of its chunks are left and the message continues.
func TestChunksAreAskedBack(t *testing.T) {
	const chunk = 4096
	no, half := []bool{false, false, false, false}, []bool{false, false, true, true}
	for _, of := range []struct {
		chunks int
		tells  bool // the link reports delivery
		want   []bool
	}{
		{4, false, no}, // the message has no further chunk
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

// TestLargeSlabSendsAskForTheirEnd checks that a send from a chunk asks for an
// acknowledgement, since an application has few chunks. A send from a slot does not: its
// application can use its buffer again at once.
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
