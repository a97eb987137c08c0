package virtual

import (
	"fmt"
	"math"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
)

// node is one sidecar with its ranks, and its link.
type node struct {
	world   *World
	self    link.Peer
	engine  *engine.Engine
	chooser *gather.Chooser // nil: everything is copied
	ranks   []*Rank
	now     float64 // nanoseconds

	inbox   queue // arrivals, by time
	greeted []link.Peer
	keys    map[uint64]link.Ref
	nextKey uint64
	mine    map[link.Region]bool // regions of applications
	offers  map[[2]uint32]int    // offered receives, by their rank and the rank that will send

	sendFree, recvFree float64 // when the adapter's two directions become free
	busFree            float64
	sending            float64 // CPU time spent on sending
	cpu                float64 // CPU time spent on communication

	copies *copyeng.Copies // nil: the model has no copy engine
	dma    *dma            // nil: nothing is offloaded
	inline uint64          // bytes that copies has counted as copied by the processor
}

// tick is the interval at which a waiting engine runs its timers.
const tick = 500_000

// wakes returns when the node has something to do.
func (n *node) wakes() float64 {
	if len(n.greeted) > 0 {
		return n.now
	}
	for _, r := range n.ranks {
		if r.ready() {
			return n.now
		}
	}
	return min(n.inbox.first(), n.now+tick)
}

// step does all that can be done at the node's time, which advances by its cost.
func (n *node) step() error {
	for busy := true; busy; {
		busy = false
		for _, p := range n.greeted {
			n.engine.Connected(p, 1)
			busy = true
		}
		n.greeted = nil
		for _, r := range n.ranks {
			if r.ready() {
				r.resume()
				busy = true
			}
		}
		if n.engine.Turn() > 0 {
			busy = true
		}
		for _, r := range n.ranks {
			if err := r.collect(); err != nil {
				return err
			}
		}
		if f := n.engine.Failure(); f != nil {
			return fmt.Errorf("virtual: node %d: %w", n.self, f)
		}
	}
	return nil
}

// spend advances the time by CPU work.
func (n *node) spend(ns float64) {
	n.now += ns
	n.cpu += ns
}

// copied advances the time by a copy of n bytes, which has the memory bus to itself.
func (n *node) copied(bytes uint64, ns float64) {
	bus := 2 * n.world.cfg.Model.BusPerByte * float64(bytes)
	if bus > 0 {
		n.now = max(n.now, n.busFree)
		n.busFree = n.now + bus
	}
	n.spend(ns)
}

// within is the link of a node to itself: shared memory, through which each byte is copied
// in and out.
type within struct {
	*local.Link
	node *node
}

// Post copies payloads in and out.
func (l *within) Post(peer link.Peer, frames []*link.Frame) int {
	taken := l.Link.Post(peer, frames)
	for _, f := range frames[:taken] {
		if f.Payload.Region != 0 {
			l.node.spend(2 * l.node.world.cfg.Model.Copy.Write.At(uint64(f.Head.Length)))
		}
	}
	return taken
}

// Poll charges the copies that the processor makes for remote operations within the node.
func (l *within) Poll(sink link.Sink) int {
	work := l.Link.Poll(sink)
	if n := l.node; n.copies != nil {
		bytes := n.copies.Stats().Inline
		n.spend(n.perByte() * float64(bytes-n.inline))
		n.inline = bytes
	}
	return work
}

// Connect implements engine.Dialer: connections exist at once.
func (n *node) Connect(peer link.Peer) {
	n.greeted = append(n.greeted, peer)
	other := n.world.nodes[peer]
	other.greeted = append(other.greeted, n.self)
}

// Cancel implements engine.Dialer.
func (n *node) Cancel(link.Peer) {}

// Abilities implements link.Link.
func (n *node) Abilities() link.Abilities {
	return link.Abilities{Attach: n.Attach, Remote: n, AddRegion: n.AddRegion, DropRegion: n.DropRegion}
}

// Attach accepts a connection: there is no socket.
func (n *node) Attach(link.Peer, int) error { return nil }

// Forget implements link.Link.
func (n *node) Forget(link.Peer) {}

// Close implements link.Link.
func (n *node) Close() error { return nil }

// AddRegion records that a region is an application's.
func (n *node) AddRegion(region link.Region, session uint32, size uint64) {
	n.mine[region] = true
	if n.chooser != nil {
		n.chooser.AddRegion(region, session, size)
	}
}

// DropRegion removes such a region.
func (n *node) DropRegion(region link.Region) {
	delete(n.mine, region)
	if n.chooser != nil {
		n.chooser.DropRegion(region)
	}
}

// Caps implements link.Link.
func (n *node) Caps() link.Caps { return n.world.cfg.Caps }

// queue holds the future events of a node, in order of time.
type queue struct {
	list []arrival
	seq  uint64
}

// arrival is an event at a time.
type arrival struct {
	at   float64
	seq  uint64
	what func(sink link.Sink) error
}

func (q *queue) first() float64 {
	if len(q.list) == 0 {
		return math.Inf(1)
	}
	return q.list[0].at
}

func (q *queue) less(i, j int) bool {
	a, b := &q.list[i], &q.list[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// add adds an arrival to the heap.
func (q *queue) add(at float64, what func(link.Sink) error) {
	q.seq++
	q.list = append(q.list, arrival{at, q.seq, what})
	for i := len(q.list) - 1; i > 0 && q.less(i, (i-1)/2); i = (i - 1) / 2 {
		q.list[i], q.list[(i-1)/2] = q.list[(i-1)/2], q.list[i]
	}
}

// pop removes and returns the first arrival. Preconditions: there is one.
func (q *queue) pop() arrival {
	a := q.list[0]
	last := len(q.list) - 1
	q.list[0] = q.list[last]
	q.list[last] = arrival{}
	q.list = q.list[:last]
	for i := 0; ; {
		k := 2*i + 1
		if k+1 < last && q.less(k+1, k) {
			k++
		}
		if k >= last || !q.less(k, i) {
			return a
		}
		q.list[i], q.list[k] = q.list[k], q.list[i]
		i = k
	}
}
