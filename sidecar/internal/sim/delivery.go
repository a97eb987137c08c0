package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Delivery that links report (link.Caps.Delivers). A delivered frame is in memory of the
// peer's link. Its sender gets the report sooner or later and may reuse the payload. The
// peer's engine gets the frame even if the connection breaks: before it learns of the end of
// that connection, or of the next one.

// drawDelivery draws whether the links of a seed report delivery, and whether sends are made
// without a copy in the engine, from a source of its own.
func (n *network) drawDelivery(seed uint64) {
	n.deliveryRNG = rand.New(rand.NewPCG(seed, 3))
	n.caps.Delivers, n.gathers = n.deliveryRNG.IntN(2) == 0, n.deliveryRNG.IntN(3) > 0
}

// RunFalseDelivery runs the job of a seed like Run, with links that report the delivery of
// frames that have not arrived, and lose some of them. It must fail for some seeds.
func RunFalseDelivery(seed uint64) error {
	w := newWorld(seed)
	w.net.caps.Delivers, w.net.falseDelivery = true, true
	_, err := w.job()
	return err
}

// Gathers implements core.Gatherer.
func (p *port) Gathers(link.Peer, link.Ref) bool {
	if !p.net.gathers || p.net.deliveryRNG.IntN(2) == 0 {
		return false
	}
	p.net.gathered++
	return true
}

// landDue delivers frames that have arrived, before their engine polls.
func (n *network) landDue() {
	if !n.caps.Delivers {
		return
	}
	for i := range len(n.ports) * len(n.ports) {
		a, b := link.Peer(i/len(n.ports)), link.Peer(i%len(n.ports))
		l := n.lines[pair(a, b)]
		if l == nil || !l.up || a == b || n.ports[b].dead || n.deliveryRNG.IntN(3) > 0 {
			continue
		}
		for _, x := range l.flows[endIndex(b, a)] {
			if x.at > n.now {
				break
			}
			n.landFrame(b, a, x)
		}
	}
}

// landFrame puts a frame into memory of the link of pod at, and reports its delivery to the
// sender.
func (n *network) landFrame(at, from link.Peer, x *packet) {
	if !n.caps.Delivers || x.landed {
		return
	}
	n.unchanged(x, from)
	x.landed = true
	if x.head.Seq > 0 && n.isCurrent(from, at) {
		n.delivered++
		p := n.ports[from]
		p.events = append(p.events, event{peer: at, kind: eventDelivered, number: x.head.Seq})
	}
}

// isCurrent reports whether pod from still has the connection on which its frame was sent:
// else the delivery is not reported.
func (n *network) isCurrent(from, at link.Peer) bool { return n.ports[from].usable(at) != nil }

// keepLanded keeps the frames that were delivered to pod at on a lost connection, and drops
// the reports of delivery that pod from has not received.
func (n *network) keepLanded(at, from link.Peer, l *line) {
	events := &n.ports[from].events
	*events = slices.DeleteFunc(*events, func(e event) bool { return e.kind == eventDelivered && e.peer == at })
	p := n.ports[at]
	if p.dead || p.attached[from] != l.generation {
		return
	}
	for _, x := range l.flows[endIndex(at, from)] {
		if !x.landed {
			break // later ones are not delivered either
		}
		p.landed[from] = append(p.landed[from], x)
	}
}

// deliverLanded passes the delivered frames of a lost connection to the engine.
func (p *port) deliverLanded(sink link.Sink, peer link.Peer) (work int) {
	for len(p.landed[peer]) > 0 {
		x := p.landed[peer][0]
		p.landed[peer] = p.landed[peer][1:]
		if work++; p.deliver(sink, peer, x) != nil {
			p.landed[peer] = nil
		}
	}
	return work
}
