package virtual

import (
	"fmt"
	"math"

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

	inbox   queue // what arrives, by time
	greeted []link.Peer
	keys    map[uint64]link.Ref
	nextKey uint64
	mine    map[link.Region]bool // regions of applications
	offers  map[[2]uint32]int    // receives offered, by their rank and the one that is to send

	sendFree, recvFree float64 // when the adapter's two directions are free
	busFree            float64
	sending            float64 // processor time spent on sending
}

// tick is the time after which an engine that waits looks at its timers.
const tick = 500_000

// wakes is when the node has something to do.
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

// step does all that can be done at the node's time, which moves on by what it costs.
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

// spend lets the processor work.
func (n *node) spend(ns float64) { n.now += ns }

// copied lets the processor copy n bytes, with the memory bus to itself meanwhile.
func (n *node) copied(bytes uint64, ns float64) {
	bus := 2 * n.world.cfg.Model.BusPerByte * float64(bytes)
	if bus > 0 {
		n.now = max(n.now, n.busFree)
		n.busFree = n.now + bus
	}
	n.now += ns
}

// within is the link of a node to itself: shared memory, through which each byte is
// copied in and out.
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

// Connect implements engine.Dialer: connections are there at once.
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

// Attach takes a connection: there is no socket.
func (n *node) Attach(link.Peer, int) error { return nil }

// Forget implements link.Link.
func (n *node) Forget(link.Peer) {}

// Close implements link.Link.
func (n *node) Close() error { return nil }

// AddRegion notes that a region is an application's.
func (n *node) AddRegion(region link.Region, session uint32, size uint64) {
	n.mine[region] = true
	if n.chooser != nil {
		n.chooser.AddRegion(region, session, size)
	}
}

// DropRegion forgets it.
func (n *node) DropRegion(region link.Region) {
	delete(n.mine, region)
	if n.chooser != nil {
		n.chooser.DropRegion(region)
	}
}

// Caps implements link.Link.
func (n *node) Caps() link.Caps { return n.world.cfg.Caps }

// queue is what will happen at a node, in order of time.
type queue struct {
	list []arrival
	seq  uint64
}

// arrival is something that happens at a time.
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

// add puts an arrival into the heap.
func (q *queue) add(at float64, what func(link.Sink) error) {
	q.seq++
	q.list = append(q.list, arrival{at, q.seq, what})
	for i := len(q.list) - 1; i > 0 && q.less(i, (i-1)/2); i = (i - 1) / 2 {
		q.list[i], q.list[(i-1)/2] = q.list[(i-1)/2], q.list[i]
	}
}

// pop takes the first one. Preconditions: there is one.
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
