package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Bounds of the open requests of this sidecar. A peer allocates state for each request and
// treats a sidecar with too many of them as a protocol violation (PROTOCOL.md §5.6, §6).
// Without these bounds a sidecar with many ranks would exceed that limit although each rank
// stays within its own.
const (
	requestWindow = 1 << 16 // fetches, unlocks and flushes at one peer; further ones wait
	flushWindow   = 64      // flushes of all peers, for one rank: each is a frame to every peer
)

// claimRequest counts a request that the peer answers at once; false: it has to wait.
func (p *peer) claimRequest(o *origin) bool {
	if p.requests >= requestWindow {
		return false
	}
	p.requests++
	o.counted = true
	return true
}

// claimWait counts a lock request or a flush of all peers, and accepts other operations;
// false: there are too many.
func (r *Room) claimWait(b *member, o *origin) bool {
	switch {
	case o.target == shm.AnySource:
		if b.flushes >= flushWindow {
			return false
		}
		b.flushes++
	case o.op == shm.OpLock:
		p := r.peerOf(o.target)
		own := r.lockWaits(p, o.rank)
		if !p.lockBound.Fits(*own, 1) {
			return false
		}
		p.lockBound.Add(own, 1)
	default:
		return true
	}
	o.counted = true
	return true
}

// lockWaits returns the counter of the locks at a peer that a rank waits for. Their bound is divided,
// so that one rank does not make the first lock of another one fail.
func (r *Room) lockWaits(p *peer, rank uint32) *int64 {
	if p.lockWaits == nil {
		p.lockWaits = make([]int64, len(r.hosted))
		p.lockBound = ranks.Divide(LockLimit, len(r.hosted))
	}
	return &p.lockWaits[r.hosts[rank].index]
}

// releaseOrigin frees an operation and its count, and wakes operations that wait for it.
func (r *Room) releaseOrigin(id uint64, o *origin) {
	if o.orphan {
		r.sessions.EndOutlived()
	}
	if o.counted {
		switch {
		case o.target == shm.AnySource:
			r.members[o.session].flushes--
		case o.op == shm.OpLock:
			p := r.peerOf(o.target)
			p.lockBound.Add(r.lockWaits(p, o.rank), -1)
		default:
			p := r.peerOf(o.target)
			p.requests--
			r.channel.Wake(p.id)
		}
	}
	r.origins.Release(id)
}
