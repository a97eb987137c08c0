package core

import (
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Reports of a failure. Connected peers are notified at once. The other pods form a tree by
// their numbers: a pod that learns of the failure notifies its parent and its children, so
// that no pod makes more than a few connections for it, however many pods there are. If a pod
// cannot be reached, its neighbours in the tree are notified instead (P§7).

// fanout is how many children a pod has in the tree: five steps reach a thousand
// pods.
const fanout = 4

// kin calls f with the neighbours of a pod in the tree.
func kin(pod, pods int, f func(link.Peer)) {
	if pod > 0 {
		f(link.Peer((pod - 1) / fanout))
	}
	for i := pod*fanout + 1; i <= pod*fanout+fanout && i < pods; i++ {
		f(link.Peer(i))
	}
}

// spread notifies the peers that the job has failed.
func (c *Core) spread(f *Failure) {
	for i := range c.peers {
		if p := &c.peers[i]; p.State() != channel.Idle {
			c.emitAbortOnce(p, f)
		}
	}
	c.announceFailure(f)
}

// emitAbortOnce sends the failure to p, unless p knows of it.
func (c *Core) emitAbortOnce(p *peer, f *Failure) {
	if p.Self() || p.knows || beyond(p) {
		return
	}
	p.knows = true
	c.emitAbort(p, f)
	c.channel.Watch(p.Peer) // its limit has changed
}

// announceFailure sends the failure to the neighbours in the tree. It is called again if one of them
// is dead.
func (c *Core) announceFailure(f *Failure) {
	lost := c.lostPod(f)
	seen := map[link.Peer]bool{c.cfg.Self: true}
	for next := []link.Peer{c.cfg.Self}; len(next) > 0; next = next[1:] {
		kin(int(next[0]), len(c.peers), func(id link.Peer) {
			if seen[id] {
				return
			}
			seen[id] = true
			p := &c.peers[id]
			if p.knows {
				return // it notifies its own neighbours
			}
			if beyond(p) || id == lost && p.State() == channel.Idle {
				next = append(next, id)
			} else {
				c.emitAbortOnce(p, f)
			}
		})
	}
}

// beyond reports whether p cannot or need not be notified any more: it is dead, or has sent
// Bye and closed its connection.
func beyond(p *peer) bool {
	return p.State() == channel.Dead || p.State() == channel.Rejected || p.Gone() && p.State() == channel.Idle
}

// lostPod returns the pod whose sidecar is lost according to the failure, or -1.
func (c *Core) lostPod(f *Failure) link.Peer {
	if f.Rank == shm.AnySource || int(f.Rank) >= len(c.cfg.PodOf) || podlife.ReasonOf(f.Reason) != podlife.SidecarLost {
		return -1
	}
	return link.Peer(c.cfg.PodOf[f.Rank])
}
