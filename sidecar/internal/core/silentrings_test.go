package core

import (
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence"
)

// ringCrowd is a core of pod 0 with a ring for each of many peers. A turn takes 1 us.
type ringCrowd struct {
	*lone
	t     *testing.T
	core  *Core
	caps  link.Caps
	peers int
	now   int64
	wrote []uint64 // frames that each peer has sent
}

const ringTurn = int64(time.Microsecond)

func newRingCrowd(t *testing.T, peers int, caps link.Caps) *ringCrowd {
	t.Helper()
	x := &ringCrowd{lone: &lone{regions: map[link.Region][]byte{}}, t: t, caps: caps, peers: peers, now: 1, wrote: make([]uint64, peers+1)}
	cfg := Config{Pods: peers + 1}
	for pod := range int32(peers + 1) {
		cfg.PodOf = append(cfg.PodOf, pod)
	}
	var err error
	if x.core, err = New(cfg, x); err != nil {
		t.Fatal(err)
	}
	if err := x.core.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	for peer := 1; peer <= peers; peer++ {
		x.connect(link.Peer(peer))
	}
	return x
}

// connect connects a peer, which greets.
func (x *ringCrowd) connect(peer link.Peer) {
	x.t.Helper()
	x.core.LinkUp(x.now, peer, x.caps)
	p := &x.core.peers[peer]
	h := wire.Header{Type: wire.Ack, Credit: p.Credit().Granted(), Ack: p.Out().Base()}
	if err := x.core.Deliver(x.now, peer, &h, nil); err != nil {
		x.t.Fatal(err)
	}
	x.wrote[peer] = 0
}

func (x *ringCrowd) visits() uint64 { return x.core.channel.Stats().RingVisits }

// turn runs a turn, and returns how many slots it has emptied and how many rings it has visited.
func (x *ringCrowd) turn() (taken int, visited uint64) {
	x.now += ringTurn
	before := x.visits()
	x.core.Flush(x.now, x)
	taken = x.core.PollMemory(x.now)
	return taken, x.visits() - before
}

// rest runs turns until all peers that send nothing are silent.
func (x *ringCrowd) rest() {
	x.t.Helper()
	for range 3 * silence.Turns {
		x.turn()
	}
	x.frames = nil
}

// ringOf returns the ring of a peer. Peers have lanes in the order in which they were connected.
func (x *ringCrowd) ringOf(peer link.Peer) []byte {
	return x.Bytes(link.Ref{Region: RegionRings, Off: uint64(peer-1) * 2 * eagerring.PiggyBack.Bytes(), Len: ringBytes})
}

// write puts the next frame of a peer into its ring, with the number seq in the stream.
func (x *ringCrowd) write(peer link.Peer, seq uint64) {
	x.wrote[peer]++
	putOf(x.ringOf(peer), uint32(peer), x.wrote[peer], seq, []byte("x"))
}

// find runs turns until one has emptied a slot.
func (x *ringCrowd) find() {
	x.t.Helper()
	for range 1000 {
		if taken, _ := x.turn(); taken > 0 {
			return
		}
	}
	x.t.Fatal("a frame in a ring is not found in 1000 turns")
}

// TestIdleRingsAreNotVisited counts the visits: while one peer sends, a turn visits its ring alone,
// and all rings every silence.LookInterval.
func TestIdleRingsAreNotVisited(t *testing.T) {
	const peers = 64
	x := newRingCrowd(t, peers, placing)
	if _, visited := x.turn(); visited != peers {
		t.Errorf("a turn visits %d new rings, want %d", visited, peers)
	}
	x.rest()
	x.write(7, 1)
	x.find()
	looks := 0
	for n := range uint64(1000) {
		x.write(7, n+2)
		switch taken, visited := x.turn(); {
		case taken != 1:
			t.Fatalf("frame %d: %d slots were emptied", n+2, taken)
		case visited == peers:
			looks++
		case visited != 1:
			t.Fatalf("a turn visits %d rings, want 1", visited)
		}
	}
	if want := int(1000 * ringTurn / int64(silence.LookInterval)); looks < want-1 || looks > want {
		t.Errorf("%d turns of 1000 have visited all rings, want %d", looks, want)
	}
}

// TestSilentRingIsFoundInTime checks that the first frame of a silent peer is found within
// silence.LookInterval, the next one in its turn, and at once if its write is notified, or if this
// side sends something to the peer.
func TestSilentRingIsFoundInTime(t *testing.T) {
	longest := int64(0)
	for phase := range 25 {
		x := newRingCrowd(t, 3, placing)
		x.rest()
		for range phase {
			x.turn()
		}
		begun := x.now
		x.write(2, 1)
		x.find()
		longest = max(longest, x.now-begun)
		x.write(2, 2)
		if taken, _ := x.turn(); taken != 1 {
			t.Error("the next frame is not found in the next turn")
		}
	}
	if longest > int64(silence.LookInterval) || longest < int64(silence.LookInterval)-2*ringTurn {
		t.Errorf("the first frame waits for up to %v, want %v", time.Duration(longest), silence.LookInterval)
	}

	for name, wake := range map[string]func(x *ringCrowd){
		"notified": func(x *ringCrowd) {
			if err := x.core.RemoteWritten(x.now, 2, ringSlots+1); err != nil { // slot 0 of the first ring
				t.Error(err)
			}
		},
		"after a message": func(x *ringCrowd) {
			d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 2, Class: shm.ClassInline}
			d.SetInline([]byte("hello"))
			if err := x.core.Submit(x.now, 0, &d); err != nil {
				t.Error(err)
			}
		},
	} {
		for phase := range 25 {
			x := newRingCrowd(t, 3, looking64)
			x.rest()
			for range phase {
				x.turn()
			}
			x.write(2, 1)
			wake(x)
			if taken, _ := x.turn(); taken != 1 {
				t.Errorf("%s: the frame is not found in the next turn", name)
			}
		}
	}
}

// TestNoSleepBeforeALook checks that an engine does not sleep after a turn that has not visited the
// silent rings: PrepareSleep asks for another turn, which visits all.
func TestNoSleepBeforeALook(t *testing.T) {
	again := 0
	for phase := range 25 {
		x := newRingCrowd(t, 3, looking64)
		x.rest()
		for range phase {
			x.turn()
		}
		x.write(3, 1)
		taken, _ := x.turn()
		if x.core.PrepareSleep() {
			again++
			if taken > 0 {
				t.Error("another turn is asked for although this one has visited all rings")
			}
			taken, _ = x.turn()
		}
		if taken != 1 || x.core.PrepareSleep() {
			t.Errorf("%d slots are emptied before the engine sleeps, want 1", taken)
		}
	}
	if again == 0 {
		t.Error("each turn has visited all rings")
	}
	x := newRingCrowd(t, 3, looking64)
	for range 10 {
		if x.turn(); x.core.PrepareSleep() {
			t.Error("another turn is asked for although no ring is silent")
		}
	}
}

// TestSilentRingsEnd checks that the ring of a connection that replaces a silent one is visited at
// once, and that the end and the faults of a silent peer are handled.
func TestSilentRingsEnd(t *testing.T) {
	x := newRingCrowd(t, 3, placing)
	x.rest()
	x.core.LinkDown(x.now, 2, link.ErrBroken)
	x.rest()
	x.connect(2)
	x.write(2, 1)
	if taken, _ := x.turn(); taken != 1 || x.core.peers[2].Arrived() != 1 {
		t.Errorf("%d slots of a new ring are emptied in the first turn, want 1", taken)
	}
	x.rest()
	x.write(2, 2)
	x.wrote[2] += 5 // a slot of a later number changes nothing
	for range 2 * int(silence.LookInterval/time.Microsecond) {
		x.turn()
	}
	if x.core.Failed() != nil || x.core.peers[2].Arrived() != 2 {
		t.Errorf("%d frames have arrived, failure %v", x.core.peers[2].Arrived(), x.core.Failed())
	}
	h := wire.Header{Type: wire.Eager, Seq: 1, Src: 3, Length: 8, Flags: 8} // no such flag
	h.EncodeSlot((*[wire.SlotHeadMax]byte)(x.ringOf(3)))
	x.ringOf(3)[wire.SlotHeadMin+8] = 1 // its number
	x.rest()
	if x.core.Failed() == nil {
		t.Error("a malformed frame in the ring of a silent peer does not end its connection")
	}
}

// TestOrderOfASilentRing checks that a frame of the connection follows those in the ring of a silent
// peer that are before it, and that one that is early waits in the ring.
func TestOrderOfASilentRing(t *testing.T) {
	x := newRingCrowd(t, 3, placing)
	x.rest()
	deliver := func(seq uint64) {
		t.Helper()
		p := &x.core.peers[1]
		h := wire.Header{Type: wire.Eager, Seq: seq, Src: 1, Tag: 5, Credit: p.Credit().Granted(), Ack: p.Out().Base()}
		if err := x.core.Deliver(x.now, 1, &h, nil); err != nil {
			t.Fatal(err)
		}
	}
	x.write(1, 1)
	x.write(1, 2)
	deliver(3)
	if n := x.core.peers[1].Arrived(); n != 3 {
		t.Fatalf("%d frames have arrived, want 3", n)
	}
	x.write(1, 5)
	x.rest() // it stays silent with a frame that has to wait
	if n := x.core.peers[1].Arrived(); n != 3 {
		t.Fatalf("%d frames have arrived, and the one before is missing", n)
	}
	deliver(4)
	if taken, _ := x.turn(); taken != 1 || x.core.peers[1].Arrived() != 5 {
		t.Errorf("%d frames have arrived, want 5", x.core.peers[1].Arrived())
	}
}
