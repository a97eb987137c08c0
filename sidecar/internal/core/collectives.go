package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/collective"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

func (c *Core) openCollectives() (err error) {
	cfg := collective.Config{Self: c.cfg.Self, PodOf: c.cfg.PodOf, Hosted: len(c.hosted), VectorPiece: c.cfg.limits.VectorPiece, Folder: c.cfg.Folder, Rules: c.cfg.Collectives, Schedules: c.cfg.Schedules, MoreLists: memory.GroupsOfSpare(c.cfg.Spare)}
	if c.collectives, err = collective.New(cfg, c.ports, c.ranks, c.p2p, c.job); err == nil {
		c.p2p.Open(c.collectives)
	}
	return err
}

// openMessages makes the room of messages.
func (c *Core) openMessages() {
	cfg := p2p.Config{
		Pods: c.cfg.Pods, CreditBytes: c.cfg.creditOfAll(), Paged: c.cfg.widens(), WarmBytes: c.cfg.limits.WarmBytes, EagerBytes: c.cfg.EagerBytes, CopyBytes: c.cfg.limits.CopyBytes,
		Rendezvous: c.cfg.Rendezvous, Gatherer: c.cfg.Gatherer, Seed: c.cfg.Seed,
	}
	for _, e := range c.hosted {
		cfg.Hosted = append(cfg.Hosted, e.rank)
	}
	c.p2p = p2p.New(cfg, c.ports, c.channel, c.ranks, c.job)
}

// submitReduced continues a collective after an operation of the program.
func (c *Core) submitReduced(s *session, d *shm.Descriptor) error {
	switch q := s.Request(d.Req); q.Kind {
	case ranks.RequestFree:
		return nil // the collective has ended
	case ranks.RequestColl:
		return c.collectives.Reduced(d.Req, q.ID)
	}
	return fmt.Errorf("request %d is no collective", d.Req)
}

// Folded continues a collective whose ranges the Folder has combined, or could not.
func (c *Core) Folded(now int64, id uint64, failed bool) {
	c.at(now)
	c.collectives.Folded(id, failed)
}

// settle ends the job if ranks have disagreed about a collective.
func (c *Core) settle() {
	if d := c.collectives.Dispute(); d != nil {
		c.failJob(&Failure{Rank: d.Rank, Code: 1, Reason: d.Reason})
	}
}
