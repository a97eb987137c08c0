package core

import (
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// settleAccounts ends the job if the messages of all peers take too much memory. It is not done within
// the frame that has shown it, which is another peer's.
func (c *Core) settleAccounts() {
	id, err := c.channel.Accused()
	switch p := &c.peers[id]; {
	case err == nil:
	case c.left: // no rank here needs the peer
		c.channel.PeerLost(c.now, id, err)
	default:
		c.failJob(c.loss(p, err))
	}
}

// setAllowances sets the bounds by the formula of the sidecar's memory. The rest of the spare memory
// is for windows of credit (memory.CreditOfSpare) and lists of ranks (memory.GroupsOfSpare).
func (c *Core) setAllowances() {
	here := 0
	for _, pod := range c.cfg.PodOf {
		if link.Peer(pod) == c.cfg.Self {
			here++
		}
	}
	n := len(c.cfg.PodOf)
	c.ofRanks = ranks.NewAllowance(memory.RanksKept+c.cfg.Spare/2, memory.RankShare(n))
	c.ofPeers = ranks.NewAllowance(memory.PeersKept(here, n, c.cfg.Pods)+c.cfg.Spare/4, memory.PeerShare)
}
