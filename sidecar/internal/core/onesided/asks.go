package onesided

import "github.com/outrigger-hpc/outrigger/api/shm"

// What the ranks of this sidecar may ask of a peer together. It keeps something of
// each request, and takes who has too many of them for one who breaks the protocol
// (P§5.6, P§6): with tens of ranks that ask for as much as they may, a sidecar would
// come to that without a mistake of its own.
const (
	askWindow = 1 << 16 // requests that are answered at once: what is beyond waits
	flushesOf = 64      // flushes of all peers, of one rank: each is a frame to every peer
)

// mayAsk counts a request that its peer answers at once; false: not yet.
func (p *peer) mayAsk(o *origin) bool {
	if p.asks >= askWindow {
		return false
	}
	p.asks++
	o.asks = true
	return true
}

// mayWait counts a lock that a peer is asked for, or a flush of all peers; false:
// there are too many.
func (r *Room) mayWait(b *member, o *origin) bool {
	switch {
	case o.target == shm.AnySource:
		if b.flushes >= flushesOf {
			return false
		}
		b.flushes++
	case o.op == shm.OpLock:
		p := r.peerOf(o.target)
		if p.waits >= LockLimit {
			return false
		}
		p.waits++
	default:
		return true
	}
	o.asks = true
	return true
}

// releaseOrigin forgets an operation, and lets the next one of its kind go.
func (r *Room) releaseOrigin(id uint64, o *origin) {
	if o.asks {
		switch {
		case o.target == shm.AnySource:
			r.members[o.session].flushes--
		case o.op == shm.OpLock:
			r.peerOf(o.target).waits--
		default:
			p := r.peerOf(o.target)
			p.asks--
			r.channel.Wake(p.id)
		}
	}
	r.origins.Release(id)
}
