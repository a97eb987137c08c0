package core

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

var (
	hostileSeeds = flag.Int("core.seeds", 150, "how many seeds of hostile peers and applications to run")
	hostileFirst = flag.Uint64("core.first", 1, "the first of them, so that many can be run in parts")
	hostileSeed  = flag.Uint64("core.seed", 0, "run this seed alone")
)

// TestHostile gives a core arbitrary peers and applications: frames of every type with valid
// and invalid numbers, descriptors of every kind, connections that break in the middle of a
// payload, and remote operations that fail. The simulator's jobs are honest with few
// exceptions, so that it finds the states that honest jobs reach; here every order of events
// is equally likely.
//
// The core may end a connection, a session or the job at any time. It must not touch memory
// that it has released, nor release memory that an operation may touch. It ends every request
// once, and no state is left when all ranks and peers are gone.
func TestHostile(t *testing.T) {
	if *hostileSeed != 0 {
		runHostile(t, *hostileSeed)
		return
	}
	var all hostileCount
	for seed := *hostileFirst; seed < *hostileFirst+uint64(*hostileSeeds); seed++ {
		all.add(runHostile(t, seed))
	}
	t.Logf("%d seeds from %d on: %+v", *hostileSeeds, *hostileFirst, all)
	if *hostileSeeds >= 100 && min(all.frames, all.taken, all.submitted, all.ended, all.breaks, 2*all.remote, all.exposed, all.pieces, all.asked, all.lent, all.reclaimed, 4*all.lentUses) < *hostileSeeds/4 {
		t.Errorf("%d seeds: %+v: too little for what they are to show", *hostileSeeds, all)
	}
}

// hostileCount counts events, so that a test without them does not pass.
type hostileCount struct {
	frames, taken     int // frames that peers sent; those that were not refused
	submitted, ended  int // requests that must end, and their ends
	breaks, remote    int // connections that broke; remote operations
	exposed, pieces   int // windows of both sides; vectors taken in pieces
	asked, denied     int // requests that a peer answers; dead peers that connected again
	failed, abandoned int // jobs that failed; payloads that were cut off
	lent, reclaimed   int // memory that applications lent, and got back
	lentUses          int // reads into lent memory, and keys of it for peers
}

func (n *hostileCount) add(m hostileCount) {
	n.frames, n.taken = n.frames+m.frames, n.taken+m.taken
	n.submitted, n.ended = n.submitted+m.submitted, n.ended+m.ended
	n.breaks, n.remote = n.breaks+m.breaks, n.remote+m.remote
	n.exposed, n.pieces = n.exposed+m.exposed, n.pieces+m.pieces
	n.asked, n.denied = n.asked+m.asked, n.denied+m.denied
	n.failed, n.abandoned = n.failed+m.failed, n.abandoned+m.abandoned
	n.lent, n.reclaimed, n.lentUses = n.lent+m.lent, n.reclaimed+m.reclaimed, n.lentUses+m.lentUses
}

// runHostile runs one seed. A panic comes from the core, or from the ports if the core broke a
// rule; in both cases the seed is reported.
func runHostile(t *testing.T, seed uint64) hostileCount {
	t.Helper()
	defer func() {
		if e := recover(); e != nil {
			t.Errorf("seed %d\n\tgo test ./sidecar/internal/core -run Hostile -core.seed=%d", seed, seed)
			panic(e)
		}
	}()
	h := newHostile(seed)
	for range 500 {
		h.step()
	}
	h.failedJob()
	h.finish()
	if left := h.left(); left != "" {
		t.Fatalf("seed %d leaves %s\n\tgo test ./sidecar/internal/core -run Hostile -core.seed=%d", seed, left, seed)
	}
	return h.count
}

// hostileJob has the pod of each rank. Pod 0 with two ranks is the core's, and the pod of rank
// 4 never connects.
var hostileJob = []int32{0, 0, 1, 1, 2}

const (
	hostileRanks = 2
	hostilePods  = 3
	hostileMem   = 1 << 20 // bytes of each session's slab, and of each arena
)

// newHostile returns a core of the kind that the seed chooses, with both ranks attached.
func newHostile(seed uint64) *hostile {
	r := rand.New(rand.NewPCG(seed, 1))
	h := &hostile{hostilePorts: hostilePorts{r: r, now: 1, keys: map[uint64]link.Ref{}}}
	h.caps = []link.Caps{
		{Name: "frames"},
		{Name: "all", Register: true, Read: true, Write: true, InOrder: true, Notify: true, Ordered: true},
		{Name: "no order", Register: true, Read: true, Write: true, Notify: true},
		{Name: "writes", Register: true, Write: true, InOrder: true},
	}[r.IntN(4)]
	h.caps.Delivers = seed%2 == 0
	protocol := rendezvous.Protocol(r.IntN(7))
	if h.caps.Lent = seed%5 < 2; h.caps.Lent {
		h.caps.Register, h.caps.Read, protocol = true, true, protocol%(rendezvous.Put+1)
	}
	if seed%3 == 0 {
		h.caps.RegisterMax = 1 << (8 + seed%7)
	}
	first := [...]uint64{0, 2 << 10, 128 << 10}[seed%3]
	c, err := New(Config{
		CreditFirst: first, CreditBudget: 192 << 10,
		PodOf: hostileJob, Pods: hostilePods, CreditBytes: 128 << 10,
		limits:  Limits{VectorPiece: []int{1, 3, 0}[r.IntN(3)], AheadFrames: []int{2, 0}[r.IntN(2)]},
		Channel: eagerring.Kind(r.IntN(4)), Rendezvous: protocol, Seed: seed,
	}, &h.hostilePorts)
	if err != nil {
		panic(err)
	}
	h.core = c
	h.clearMemory()
	for s := range SessionID(hostileRanks) {
		if err := c.Attach(h.now, s, uint32(s), shm.FeaturesAll, slabOf(s), arenaOf(s)); err != nil {
			panic(err)
		}
		h.open[s], h.lent[s] = map[uint32]bool{}, map[uint32]link.Lent{}
		if seed%7 > 0 {
			c.Lend(s, &h.hostilePorts, lentOf(s))
			h.expose(s)
		}
	}
	c.LinkUp(h.now, 0, link.Caps{Name: "local", Register: true, Read: true, Write: true, InOrder: true, Notify: true})
	return h
}

// expose lets a rank expose as much memory as it can at once.
func (h *hostile) expose(s SessionID) {
	for number := range uint64(hostileExposures) {
		d := shm.Descriptor{Op: shm.OpExpose, Req: hostileRequests - 1}
		d.SetBody(1<<20, hostileMem, number, 7)
		h.open[s][d.Req] = true
		if err := h.core.Submit(h.now, s, &d); err != nil {
			panic(err)
		}
	}
}

// hostile is a core with hostile peers and applications.
type hostile struct {
	hostilePorts
	caps link.Caps
	req  uint32
	cut  [hostilePods]wire.Header // frames whose payloads were cut off

	comms [hostileRanks]map[uint32]int // number of ranks of each communicator
}

// step makes one random event happen.
func (h *hostile) step() {
	h.endBroken()
	switch k := h.r.IntN(20); {
	case k < 7:
		h.submit()
	case k < 13:
		h.peerActs(link.Peer(1 + h.r.IntN(2)))
	case k == 13:
		h.rare(link.Peer(1 + h.r.IntN(2)))
	case k < 16:
		h.now += int64(h.r.IntN(int(400e6)))
		h.core.Tick(h.now)
	case k < 17:
		h.endRemote()
	default:
		h.turn()
	}
	if h.core.fail != nil {
		h.count.failed = 1
	}
}

// turn does what a turn of the engine does: flush, poll and advance.
func (h *hostile) turn() {
	h.core.Flush(h.now, h)
	h.write()
	h.deliverOwn()
	h.core.PollMemory(h.now)
	h.core.Advance(h.now)
}

// rare makes an event happen that a job sees at most once.
func (h *hostile) rare(p link.Peer) {
	switch {
	case h.r.IntN(60) == 0:
		h.core.PeerLost(h.now, p, errGone)
	case h.r.IntN(60) == 0:
		h.core.Leave(h.now)
	case h.r.IntN(60) == 0 && h.core.peers[p].State() == channel.Connecting:
		h.core.LinkFailed(h.now, p, errGone)
	case h.up[p] && h.r.IntN(4) == 0:
		h.breakLink(p, link.ErrBroken)
	case h.up[p] && h.caps.Notify && h.r.IntN(4) == 0:
		if err := h.core.RemoteWritten(h.now, p, h.number()); err != nil {
			h.refused(p, err)
		}
	}
}

// breakLink does what a link does when its connection is lost: it reports first the ends of
// the operations in flight, and then the loss (link.Remote, Lifetimes).
func (h *hostile) breakLink(p link.Peer, err error) {
	if !h.up[p] {
		return
	}
	h.forget(p)
	h.endBroken()
	h.count.breaks++
	h.core.LinkDown(h.now, p, err)
}

// refused ends a connection that violated the protocol. Mostly it is reported as broken, so
// that the test goes on in the state that the refusal has left.
func (h *hostile) refused(p link.Peer, err error) {
	if h.r.IntN(200) > 0 {
		err = link.ErrBroken
	}
	h.breakLink(p, err)
}

// endBroken ends the operations of connections that are gone.
func (h *hostile) endBroken() {
	for i := 0; i < len(h.ops); i++ {
		if op := h.ops[i]; op.broken {
			h.ops = append(h.ops[:i], h.ops[i+1:]...)
			h.core.RemoteDone(h.now, op.peer, op.token, link.ErrBroken)
			i = -1
		}
	}
}

// endRemote ends one remote operation, with or without an error.
func (h *hostile) endRemote() {
	if len(h.ops) == 0 {
		return
	}
	i := h.r.IntN(len(h.ops))
	op := h.ops[i]
	h.ops = append(h.ops[:i], h.ops[i+1:]...)
	if _, _, lent := h.lends(op.mem); !lent { // a registration of other memory may have ended earlier
		h.Bytes(op.mem)
	}
	var err error
	if h.r.IntN(4) == 0 {
		err = link.ErrKey
	}
	h.core.RemoteDone(h.now, op.peer, op.token, err)
}

// failedJob fails every other job before its ranks and peers leave.
func (h *hostile) failedJob() {
	if h.r.IntN(2) == 0 {
		h.core.Fail(h.now, &Failure{Rank: 0, Code: 1, Reason: "the story is over"})
	}
}

// finish lets all ranks and peers leave, and time pass.
func (h *hostile) finish() {
	if h.r.IntN(2) == 0 {
		h.detachAll()
	}
	for p := link.Peer(1); p < hostilePods; p++ {
		h.breakLink(p, link.ErrBroken)
		h.core.PeerLost(h.now, p, errGone)
	}
	h.settle()
	for s, open := range h.open {
		for req := range open {
			panic(fmt.Sprintf("request %d of session %d has no end, failed job %v", req, s, h.core.fail != nil))
		}
	}
	h.detachAll()
	h.settle()
}

// detachAll detaches all ranks.
func (h *hostile) detachAll() {
	for s := range SessionID(hostileRanks) {
		h.detach(s, []error{nil, errGone}[h.r.IntN(2)])
	}
}

// settle lets more time pass than any step takes.
func (h *hostile) settle() {
	for range 200 {
		h.now += 1e6
		h.core.Tick(h.now)
		for h.core.Advance(h.now) > 0 {
		}
		for i := range h.ops {
			h.ops[i].broken = true
		}
		h.endBroken()
		h.turn()
	}
}

// left describes the state that has not ended.
func (h *hostile) left() string {
	c, st, one := h.core, h.core.Stats(), h.core.onesided.Open()
	var b strings.Builder
	for _, x := range []struct {
		what string
		n    int
	}{
		{"receives", st.Receives},
		{"collectives", st.Collectives},
		{"probes", st.Probes},
		{"sends", st.Sends},
		{"accesses", one.Accesses},
		{"messages", st.Parked},
		{"bytes of the pool", int(st.UnexpectedBytes)},
		{"bytes of copies", c.p2p.Stats().Copied},
		{"remote operations", c.p2p.Stats().Remotes},
		{"gets", one.Gets},
		{"views of windows", one.Views},
		{"exposures", one.Exposures},
		{"endings", len(c.endings)},
		{"orphans", c.p2p.Orphans()},
		{"names of messages", c.p2p.Stats().Retractable},
		{"windows", one.Windows},
		{"closing windows", one.Closing},
		{"asks", one.Asked},
		{"remote accesses", one.Remote},
		{"queues", one.Queued},
		{"ranks of groups", int(c.collectives.Stats().Groups)},
		{"registrations", len(h.keys)},
		{"backlog of rank 0", c.channel.Waiting(0)},
		{"backlog of rank 1", c.channel.Waiting(1)},
		{"frames to itself", int(c.peers[0].Out().Last() - c.peers[0].Out().Base())},
	} {
		if x.n != 0 {
			fmt.Fprintf(&b, " %d %s", x.n, x.what)
		}
	}
	for i := range c.peers {
		if c.peers[i].Transferring() {
			fmt.Fprintf(&b, " streams to pod %d", i)
		}
	}
	for s, freed := range h.freed {
		if !freed {
			fmt.Fprintf(&b, " memory of session %d, held %d times", s, c.sessions[s].Holds())
		}
	}
	return b.String()
}

// bodyOf returns the encoded payload of a frame whose type has one.
func bodyOf(f *wire.Header, body interface{ Encode([]byte) int }) []byte {
	b := make([]byte, 64)
	b = b[:body.Encode(b)]
	f.Length = uint32(len(b))
	return b
}
