package sim

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// cast is a write whose end nobody is told (link.Caster). It is a packet among the
// frames: in place when its time has come, whether or not its target looks, and its
// notice, if it has one, is told in its turn.
type cast struct {
	data   []byte
	key    link.Key
	notify uint64
	placed bool
}

// drawCasts decides whether links take casts, from a source of its own.
func (n *network) drawCasts(seed uint64) {
	if rng := rand.New(rand.NewPCG(seed, 9)); rng.IntN(2) == 0 {
		n.casting = rng
	}
}

// Cast implements link.Caster. Now and then there is no room.
func (p *port) Cast(peer link.Peer, data []byte, dst link.Key, notify uint64) bool {
	p.net.note("cast", uint64(p.self), uint64(peer), uint64(crc32.Checksum(data, castagnoli)), dst.Key, dst.Addr, notify)
	l, rng := p.usable(peer), p.net.casting
	if l == nil || rng == nil || rng.IntN(10) == 0 {
		return false
	}
	flow := &l.flows[end(peer, p.self)]
	if len(*flow) >= backlog {
		return false
	}
	x := &packet{at: p.net.now + rng.Int64N(30_000), cast: &cast{data: bytes.Clone(data), key: dst, notify: notify}}
	if k := len(*flow); k > 0 {
		x.at = max(x.at, (*flow)[k-1].at)
	}
	*flow = append(*flow, x)
	p.net.casts++
	return true
}

// lastCast is the last cast of a flow; nil: there is none.
func lastCast(flow []*packet) *cast {
	for _, x := range slices.Backward(flow) {
		if x.cast != nil {
			return x.cast
		}
	}
	return nil
}

// placeCasts puts those casts in place whose time has come.
func (n *network) placeCasts() {
	if n.casting == nil {
		return
	}
	for i := range len(n.ports) * len(n.ports) {
		from, to := n.ports[i/len(n.ports)], n.ports[i%len(n.ports)]
		l := n.lines[pair(from.self, to.self)]
		if l == nil || !l.up || from == to || from.frozen || to.gone() {
			continue
		}
		for _, x := range l.flows[end(to.self, from.self)] {
			if x.at > n.now || x.cast != nil && !n.place(from, to, x.cast) {
				break
			}
		}
	}
}

// place puts a cast in place; false: its target has refused it, which ends the connection.
func (n *network) place(from, to *port, c *cast) bool {
	if c.placed {
		return true
	}
	whole, lent, err := to.resolve(c.key, uint64(len(c.data)))
	if err == nil {
		var mem []byte
		if mem, err = to.bytes(whole, lent, span{0, uint64(len(c.data))}); err == nil {
			copy(mem, c.data)
			c.placed = true
			to.written(whole, c.notify)
			return true
		}
	}
	if !n.deadly {
		n.fault = "a cast reaches for memory that is not registered: " + err.Error()
	}
	n.breakLine(from.self, to.self)
	return false
}

// takeCast takes a cast's turn.
func (p *port) takeCast(sink link.Sink, peer link.Peer, c *cast) {
	if p.net.place(p.net.ports[peer], p, c) && c.notify != 0 && p.net.caps.Notify {
		sink.Written(peer, c.notify)
	}
}
