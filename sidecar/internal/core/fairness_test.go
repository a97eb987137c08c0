package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/collective"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// manyPeers is a core of pod 0 that hosts the ranks 0 and 1, and is connected to pod 1 with
// the ranks 2 and 3. Arenas have any size: all of them are the same memory, and the bytes that
// are read and written there are counted.
type manyPeers struct {
	lone
	t       *testing.T
	core    *Core
	scratch []byte
	touched uint64 // bytes of arenas that were read or written since this was last set to 0
	room    int    // frames that the link still takes; negative: any number
	done    int    // completions
	ended   func(SessionID, *shm.Descriptor)
	seq     uint64

	gatherer Gatherer // nil: each small message is copied
}

const manyArena = 1 << 30

func newCrowd(t *testing.T) *manyPeers {
	t.Helper()
	x := newStranger(t)
	x.meet()
	return x
}

// gathering returns a manyPeers whose link gathers.
func gathering(t *testing.T, g Gatherer) *manyPeers {
	t.Helper()
	x := &manyPeers{lone: lone{regions: map[link.Region][]byte{}}, t: t, scratch: make([]byte, 1<<20), room: -1, gatherer: g}
	x.attach()
	x.meet()
	return x
}

func (x *manyPeers) attach() {
	x.t.Helper()
	t := x.t
	var err error
	if x.core, err = New(Config{Self: 0, PodOf: []int32{0, 0, 1, 1}, Pods: 2, Gatherer: x.gatherer}, x); err != nil {
		t.Fatal(err)
	}
	// These tests are not of the bounds of all ranks' and all peers' bytes.
	x.core.ofRanks, x.core.ofPeers = ranks.NewAllowance(1<<40, 0), ranks.NewAllowance(1<<40, 0)
	for rank := range uint32(2) {
		base := RegionFirst + link.Region(2*rank)
		if err := x.core.Attach(1, SessionID(rank), rank, shm.FeaturesAll, link.Ref{Region: base, Len: 1 << 20}, link.Ref{Region: base + 1, Len: manyArena}); err != nil {
			t.Fatal(err)
		}
	}
}

// meet connects the other pod for the first time.
func (x *manyPeers) meet() {
	x.t.Helper()
	x.core.LinkUp(1, 1, link.Caps{Name: "test"})
	greeting := wire.Header{Type: wire.Ack, Credit: x.core.peers[1].Credit().Granted()}
	if err := x.core.Deliver(1, 1, &greeting, nil); err != nil {
		x.t.Fatal(err)
	}
}

func (x *manyPeers) Bytes(r link.Ref) []byte {
	if r.Region < RegionFirst || (r.Region-RegionFirst)%2 == 0 {
		return x.lone.Bytes(r)
	}
	if r.Len > uint64(len(x.scratch)) {
		x.t.Fatalf("%d bytes of an arena are touched in one step", r.Len)
	}
	x.touched += r.Len
	return x.scratch[:r.Len]
}

func (x *manyPeers) Complete(id SessionID, d *shm.Descriptor) {
	if x.done++; x.ended != nil {
		x.ended(id, d)
	}
}

func (x *manyPeers) Post(peer link.Peer, frames []*link.Frame) int {
	n := len(frames)
	if x.room >= 0 {
		n = min(n, x.room)
		x.room -= n
	}
	return x.lone.Post(peer, frames[:n])
}

func (x *manyPeers) submit(rank SessionID, d shm.Descriptor) {
	x.t.Helper()
	if err := x.core.Submit(2, rank, &d); err != nil {
		x.t.Fatal(err)
	}
}

func (x *manyPeers) deliver(h wire.Header, payload []byte) {
	x.t.Helper()
	x.seq++
	h.Seq = x.seq
	if err := x.core.Deliver(2, 1, &h, payload); err != nil {
		x.t.Fatal(err)
	}
}

// arena returns a descriptor of n bytes of arena memory.
func arena(op shm.Op, peer uint32, req uint32, n uint64) shm.Descriptor {
	d := shm.Descriptor{Op: op, Class: shm.ClassArena, Peer: peer, Req: req, Context: 9}
	d.SetBody(0, n, 0, 0)
	return d
}

// TestOneSidedIsPaced checks that a rank that puts, accumulates or serves a get of half a
// gigabyte makes only as many frames as the link can use, and that the next frame of another
// rank is sent directly behind those.
func TestOneSidedIsPaced(t *testing.T) {
	const large = 512 << 20
	for name, begin := range map[string]func(x *manyPeers){
		"put": func(x *manyPeers) { x.submit(0, arena(shm.OpPut, 2, 1, large)) },
		"accumulate": func(x *manyPeers) {
			d := arena(shm.OpAcc, 2, 1, large)
			d.Tag = uint64(shm.TypeUint64)<<8 | uint64(shm.ReduceSum)
			x.submit(0, d)
		},
		"get": func(x *manyPeers) {
			x.submit(0, arena(shm.OpWin, 0, 1, large))
			for i := range uint64(onesided.GetWindow) {
				x.deliver(wire.Header{Type: wire.Get, Context: 9, Src: 2, A: i + 1, B: large}, nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newCrowd(t)
			x.room = 0
			begin(x)
			x.core.Flush(2, x)
			small := shm.Descriptor{Op: shm.OpSend, Req: 7, Peer: 3}
			small.SetInline([]byte("innocent"))
			x.submit(1, small)
			p := &x.core.peers[1]
			if n := p.Out().Last(); n > 2*(256<<10)/onesided.AccFragment+2 {
				t.Errorf("%d frames wait for a link that takes none", n)
			}
			before := uint64(0)
			for s := p.Out().Base() + 1; s <= p.Out().Last(); s++ {
				before += p.Out().At(s).Payload.Len
			}
			if before > 2*(256<<10) {
				t.Errorf("8 bytes of another rank wait behind %d", before)
			}
		})
	}
}

// TestStreamsTakeTurns checks that the large messages of two ranks take turns, fragment by
// fragment, however many messages one of them has.
func TestStreamsTakeTurns(t *testing.T) {
	x := newCrowd(t)
	for i := range uint32(20) {
		x.submit(0, arena(shm.OpSend, 2, i+1, 64<<20))
	}
	x.submit(1, arena(shm.OpSend, 3, 1, 4<<20))
	x.core.Flush(2, x)
	body := wire.PullBody{}
	var raw [wire.PullBytes]byte
	for rank := range SessionID(2) {
		for i := range x.core.sessions[rank].Requests() {
			q := x.core.sessions[rank].Request(uint32(i))
			if w, ok := x.core.p2p.WaitOf(q); q.Kind == ranks.RequestSend && ok {
				body.Bytes = w.Bytes
				x.deliver(wire.Header{Type: wire.Pull, A: q.ID, B: 100 + uint64(rank), Length: uint32(body.Encode(raw[:]))}, raw[:])
			}
		}
	}
	x.frames, x.room = nil, 32
	for x.room > 0 { // a turn posts a fragment or two
		x.core.Flush(2, x)
	}
	mine := 0
	for _, f := range x.frames {
		if f.Head.Type == wire.Data && f.Head.A == 101 {
			mine++
		}
	}
	if mine < 15 {
		t.Errorf("the rank with one message had %d of %d fragments", mine, len(x.frames))
	}
}

// TestFoldsAreBounded checks that a reduction of half a gigabyte is done in steps, and that a
// small reduction at the same time does not wait for its end.
func TestFoldsAreBounded(t *testing.T) {
	x := newCrowd(t)
	for rank := range SessionID(2) { // communicators of one rank each: these collectives only copy
		list := x.lone.Bytes(link.Ref{Region: RegionFirst + link.Region(2*rank), Len: 4})
		list[0] = byte(rank)
		d := shm.Descriptor{Op: shm.OpComm, Req: 1, Context: 4, Class: shm.ClassSlab}
		d.SetBody(0, 4, 0, 0)
		x.submit(rank, d)
	}
	reduce := func(rank SessionID, count uint64) {
		b := shm.CollBlock{
			Kind: shm.CollAllreduce, Type: shm.TypeUint8, Op: shm.ReduceMax, Flags: shm.CollCommutative, Context: 4,
			Count: count, Elem: 1, In: 0, InBytes: count, Out: manyArena / 2, OutBytes: count,
		}
		b.Encode(x.lone.Bytes(link.Ref{Region: RegionFirst + link.Region(2*rank), Len: shm.CollBlockBytes}))
		d := shm.Descriptor{Op: shm.OpColl, Req: 2, Class: shm.ClassSlab}
		d.SetBody(0, shm.CollBlockBytes, 0, 0)
		x.submit(rank, d)
	}
	x.done = 0
	reduce(0, 512<<20)
	reduce(1, 1<<20)
	steps, small := 0, 0
	for x.done < 2 {
		steps++
		x.touched = 0
		if x.core.Advance(3) == 0 {
			t.Fatal("nothing is left to do, and the reductions have not ended")
		}
		if x.touched > 4*collective.AdvanceBytes {
			t.Fatalf("one step touches %d bytes", x.touched)
		}
		if x.done == 1 && small == 0 {
			small = steps
		}
	}
	if least := 512 << 20 / collective.AdvanceBytes; steps < least || small > least/100 {
		t.Errorf("%d steps, the small one after %d", steps, small)
	}
}

// TestEndsAreBounded checks that the end of a rank with as many open requests as it may have
// takes linear time, and is done in steps.
func TestEndsAreBounded(t *testing.T) {
	const many = shm.MaxRequests - 2
	for name, fill := range map[string]func(x *manyPeers, req uint32){
		"collectives": func(x *manyPeers, req uint32) {
			if req == 1 {
				b := shm.CollBlock{Kind: shm.CollBarrier}
				b.Encode(x.lone.Bytes(link.Ref{Region: RegionFirst, Len: shm.CollBlockBytes}))
			}
			d := shm.Descriptor{Op: shm.OpColl, Req: req, Class: shm.ClassSlab}
			d.SetBody(0, shm.CollBlockBytes, 0, 0)
			x.submit(0, d)
		},
		"receives": func(x *manyPeers, req uint32) { x.submit(0, arena(shm.OpRecv, 2, req, 64)) },
		"sends":    func(x *manyPeers, req uint32) { x.submit(0, arena(shm.OpSend, 2, req, 1<<20)) },
		"probes": func(x *manyPeers, req uint32) {
			x.submit(0, shm.Descriptor{Op: shm.OpProbe, Req: req, Peer: 2, Context: 9})
		},
		"puts": func(x *manyPeers, req uint32) { x.submit(0, arena(shm.OpPut, 2, req, 1<<20)) },
		"silent": func(x *manyPeers, req uint32) {
			d := shm.Descriptor{Op: shm.OpSend, Peer: 2, Flags: shm.FlagSilent}
			d.SetInline([]byte("12345678"))
			x.submit(0, d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newCrowd(t)
			x.room = 0
			for req := range uint32(many) {
				fill(x, req+1)
			}
			x.core.Detach(3, 0, errGone)
			steps := 1
			for ; x.core.Advance(3) > 0; steps++ {
				if steps > 4*many/advanceItems {
					t.Fatalf("not over after %d steps for %d requests", steps, many)
				}
			}
			if steps < many/advanceItems/2 {
				t.Errorf("%d requests end in %d steps", many, steps)
			}
			if n := x.core.Stats().Sends + x.core.Stats().Receives + x.core.Stats().Collectives + x.core.Stats().Probes; n > 0 {
				t.Errorf("%d requests are left", n)
			}
		})
	}
}

var errGone = link.ErrBroken
