package core

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// ending is the end of all that an application has open, because it has left or the job has failed.
// It is done in steps (Advance): the requests, the silent sends, and, if the rank leaves, its windows
// and the messages for it.
type ending struct {
	session  *session  // nil: of a rank that never attached
	endpoint *endpoint // endpoint of a rank that leaves
	leaves   bool      // the session is over; else it stays attached to a failed job
	clean    bool      // it has detached in good order
	request  int       // next of the session's requests
}

// begin queues an ending, and does the first step of it. Preconditions: the session is held, or stays
// attached.
func (c *Core) begin(x ending) {
	c.endings = append(c.endings, x)
	if len(c.endings) == 1 {
		c.endSessions(advanceItems)
	}
}

// endSessions ends up to budget items of the oldest endings. It returns the rest of the
// budget.
func (c *Core) endSessions(budget int) int {
	for len(c.endings) > 0 && budget > 0 {
		x := &c.endings[0]
		if budget = c.endStep(x, budget); budget == 0 {
			return 0
		}
		done := *x
		c.endings = c.endings[:copy(c.endings, c.endings[1:])]
		if done.leaves {
			done.endpoint.ended = true
			c.emitByes()
			if done.session != nil {
				c.ranks.Unhold(done.session.ID())
			}
		}
	}
	return budget
}

// endStep continues one ending. It returns the rest of the budget.
func (c *Core) endStep(x *ending, budget int) int {
	s := x.session
	if s == nil {
		return c.endEndpoint(x.endpoint, budget)
	}
	for ; x.request < s.Requests() && budget > 0; x.request++ {
		if s.Request(uint32(x.request)).Kind != ranks.RequestFree {
			c.endRequest(x, uint32(x.request))
			budget--
		}
	}
	if x.request < s.Requests() {
		return 0
	}
	budget, more := c.p2p.EndSilent(s.ID(), x.clean, budget)
	if more || !x.leaves {
		return budget
	}
	return c.endEndpoint(x.endpoint, budget)
}

// endRequest ends one request of an application. The request stays open if an event in flight
// ends it: the acknowledgement of a frame, or the last frame of a peer about it.
func (c *Core) endRequest(x *ending, req uint32) {
	s := x.session
	if c.p2p.EndRequest(s.ID(), req, x.clean) {
		return
	}
	switch q := s.Request(req); q.Kind {
	case ranks.RequestColl:
		c.collectives.End(q.ID, shm.StatusAborted)
	case ranks.RequestOrigin:
		c.onesided.End(q.ID, shm.StatusAborted)
	}
}

// endEndpoint closes the windows of a rank that has left, and refuses the messages for it.
func (c *Core) endEndpoint(e *endpoint, budget int) int {
	return c.p2p.EndRank(e.rank, c.onesided.CloseWindows(e.rank, budget))
}
