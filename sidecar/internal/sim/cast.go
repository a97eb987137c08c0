package sim

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// cast is a write without a completion (link.Caster). It is a packet among the frames. Its
// data is placed at its arrival time, whether or not the target polls, and its notification,
// if it has one, is delivered in the order of the packets.
type cast struct {
	data   []byte
	key    link.Key
	notify uint64
	placed bool
}

// drawCasts draws whether the links have casts, from a source of its own.
func (n *network) drawCasts(seed uint64) {
	if rng := rand.New(rand.NewPCG(seed, 9)); rng.IntN(2) == 0 {
		n.castRNG = rng
	}
}

// Cast implements link.Caster. Some casts find no room.
func (p *port) Cast(peer link.Peer, data []byte, dst link.Key, notify uint64) bool {
	p.net.note("cast", uint64(p.self), uint64(peer), uint64(crc32.Checksum(data, castagnoli)), dst.Key, dst.Addr, notify)
	l, rng := p.usable(peer), p.net.castRNG
	if l == nil || rng == nil || rng.IntN(10) == 0 {
		return false
	}
	flow := &l.flows[endIndex(peer, p.self)]
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

// lastCast returns the last cast of a flow, or nil.
func lastCast(flow []*packet) *cast {
	for _, x := range slices.Backward(flow) {
		if x.cast != nil {
			return x.cast
		}
	}
	return nil
}

// placeCasts places the data of the casts that have arrived.
func (n *network) placeCasts() {
	if n.castRNG == nil {
		return
	}
	for i := range len(n.ports) * len(n.ports) {
		from, to := n.ports[i/len(n.ports)], n.ports[i%len(n.ports)]
		l := n.lines[pair(from.self, to.self)]
		if l == nil || !l.up || from == to || from.frozen || to.unreachable() {
			continue
		}
		for _, x := range l.flows[endIndex(to.self, from.self)] {
			if x.at > n.now || x.cast != nil && !n.placeCast(from, to, x.cast) {
				break
			}
		}
	}
}

// placeCast places the data of a cast. It returns false if the target has refused it, which
// breaks the connection.
func (n *network) placeCast(from, to *port, c *cast) bool {
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
	if !n.mayReclaim {
		n.fault = "a cast accesses memory that is not registered: " + err.Error()
	}
	n.breakLine(from.self, to.self)
	return false
}

// takeCast delivers a cast: its data is placed, and its notification reported.
func (p *port) takeCast(sink link.Sink, peer link.Peer, c *cast) {
	if p.net.placeCast(p.net.ports[peer], p, c) && c.notify != 0 && p.net.caps.Notify {
		sink.Written(peer, c.notify)
	}
}
