package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Delivery that links tell by themselves (link.Caps.Delivers). A frame that has come is
// in memory of the peer's link from then on: its sender is told, sooner or later, and
// may let go of the payload; and it is handed to the peer's engine, whatever breaks,
// before that is told of the end of the connection, or of another one.

// drawDelivery decides whether the links of a seed tell of delivery, and whether sends
// go without the engine's copy, from a source of its own.
func (n *network) drawDelivery(seed uint64) {
	n.luck = rand.New(rand.NewPCG(seed, 3))
	n.caps.Delivers, n.gathers = n.luck.IntN(2) == 0, n.luck.IntN(3) > 0
}

// RunLying is Run with links that tell of frames as if they had come, and lose some of
// them. It is to fail, in one seed or another.
func RunLying(seed uint64) error {
	w := newWorld(seed)
	w.net.caps.Delivers, w.net.lies = true, true
	_, err := w.job()
	return err
}

// Gathers implements core.Gatherer.
func (p *port) Gathers(link.Peer, link.Ref) bool {
	if !p.net.gathers || p.net.luck.IntN(2) == 0 {
		return false
	}
	p.net.gathered++
	return true
}

// land lets frames come whose time is there, though their engine does not look yet.
func (n *network) land() {
	if !n.caps.Delivers {
		return
	}
	for i := range len(n.ports) * len(n.ports) {
		a, b := link.Peer(i/len(n.ports)), link.Peer(i%len(n.ports))
		l := n.lines[pair(a, b)]
		if l == nil || !l.up || a == b || n.ports[b].dead || n.luck.IntN(3) > 0 {
			continue
		}
		for _, x := range l.flows[end(b, a)] {
			if x.at > n.now {
				break
			}
			n.came(b, a, x)
		}
	}
}

// came puts a frame into memory of the link of pod at, and tells its sender.
func (n *network) came(at, from link.Peer, x *packet) {
	if !n.caps.Delivers || x.landed {
		return
	}
	n.unchanged(x, from)
	x.landed = true
	if x.head.Seq > 0 && n.usual(from, at) {
		n.told++
		p := n.ports[from]
		p.events = append(p.events, event{peer: at, kind: eventCame, number: x.head.Seq})
	}
}

// usual reports that pod from has the connection on which its frame came: news of
// another are nobody's.
func (n *network) usual(from, at link.Peer) bool { return n.ports[from].usable(at) != nil }

// settle keeps what has come to pod at on a connection that is lost, and forgets what
// pod from was still to be told of it.
func (n *network) settle(at, from link.Peer, l *line) {
	events := &n.ports[from].events
	*events = slices.DeleteFunc(*events, func(e event) bool { return e.kind == eventCame && e.peer == at })
	p := n.ports[at]
	if p.dead || p.attached[from] != l.generation {
		return
	}
	for _, x := range l.flows[end(at, from)] {
		if !x.landed {
			break // those behind it neither
		}
		p.landed[from] = append(p.landed[from], x)
	}
}

// handOver gives the engine what had come on a connection that is gone.
func (p *port) handOver(sink link.Sink, peer link.Peer) (work int) {
	for len(p.landed[peer]) > 0 {
		x := p.landed[peer][0]
		p.landed[peer] = p.landed[peer][1:]
		if work++; p.deliver(sink, peer, x) != nil {
			p.landed[peer] = nil
		}
	}
	return work
}
