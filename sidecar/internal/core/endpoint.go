package core

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// endpoint is a rank that this sidecar hosts. It exists from the start, so
// that messages may arrive before the application attaches.
type endpoint struct {
	rank    uint32
	index   int      // among the ranks of this sidecar
	session *session // nil: no application is attached
	gone    bool     // was attached and has left
	ended   bool     // and nothing of the rank is open any more
	absent  bool     // the rank's process has ended: it attaches no more
}

// session is an attached application.
type session struct {
	ranks.Session
	endpoint *endpoint
}

// Attach adds an application that speaks for rank, and whose client has features. The refs
// are its slab and arena.
func (c *Core) Attach(now int64, id SessionID, rank uint32, features uint64, slab, arena link.Ref) error {
	c.at(now)
	if int(rank) >= len(c.endpoints) || c.endpoints[rank] == nil {
		return fmt.Errorf("rank %d is not hosted by this sidecar", rank)
	}
	e := c.endpoints[rank]
	switch {
	case e.session != nil:
		return fmt.Errorf("rank %d is attached already", rank)
	case e.gone:
		return fmt.Errorf("rank %d has left the job and cannot come back", rank)
	}
	for int(id) >= len(c.sessions) {
		c.sessions = append(c.sessions, nil)
	}
	s := &session{endpoint: e}
	c.ranks.Attach(&s.Session, id, rank, features, slab, arena)
	c.p2p.Attach(&s.Session)
	c.collectives.Attach(&s.Session, e.index)
	c.onesided.Attach(&s.Session)
	c.sessions[id], e.session = s, s
	if c.fail != nil {
		c.reportFailure(s)
	}
	return nil
}

// Detach removes an application: in good order after OpDetach, or because it has died, which ends the
// job (P§7).
func (c *Core) Detach(now int64, id SessionID, reason error) {
	c.at(now)
	s := c.sessions[id]
	if s == nil || s.Left() {
		return
	}
	s.Leave() // it is held until its ending is done
	e := s.endpoint
	e.session, e.gone = nil, true
	c.p2p.Detach(e.rank, true)
	if reason != nil {
		c.failJob(c.blamed(e.rank, reason))
	} else {
		c.depart(e.rank)
	}
	c.begin(ending{session: s, endpoint: e, leaves: true, clean: reason == nil && c.fail == nil})
}

// Unattach undoes the attachment of an application that has not read its Welcome: its rank may attach
// again. It reports false if the application has submitted something, or has left.
func (c *Core) Unattach(now int64, id SessionID) bool {
	c.at(now)
	s := c.sessions[id]
	if s == nil || s.Left() || s.Requests() > 0 || c.fail != nil {
		return false
	}
	s.Leave()
	s.endpoint.session = nil
	c.p2p.Detach(s.endpoint.rank, false)
	c.ranks.Unhold(id)
	return true
}

// AbsentError is the reason of a rank that has ended while it waited for another rank, which had closed
// its session. Rank is the latter, which caused the failure.
type AbsentError struct {
	Rank uint32
	Text string
}

func (a *AbsentError) Error() string { return a.Text }

// blamed returns the failure of a rank that has ended. If the reason names a rank that has left
// before, the failure is that rank's; a reason that names a rank which has not left is ignored.
func (c *Core) blamed(rank uint32, reason error) *Failure {
	var a *AbsentError
	switch {
	case !errors.As(reason, &a):
	case int(a.Rank) < len(c.cfg.PodOf) && (c.job.HasLeft(a.Rank) || c.peerOf(a.Rank).Gone()):
		rank = a.Rank
	default:
		reason = errors.New(podlife.TextVanished)
	}
	return &Failure{Rank: rank, Code: 1, Reason: reason.Error()}
}

// Left reports whether an application has been detached.
func (c *Core) Left(id SessionID) bool {
	s := c.sessions[id]
	return s == nil || s.Left()
}

// sessionGone removes a session that nothing refers to any more.
func (c *Core) sessionGone(id SessionID) {
	c.sessions[id] = nil
	c.p2p.SessionGone(id)
	c.collectives.SessionGone(id)
	c.onesided.SessionGone(id)
}

// Bound restricts a session to the allocated pieces of its arena. Without it, all of it may be named.
func (c *Core) Bound(id SessionID, p Pieces) { c.sessions[id].Bound(p) }

// Lend permits a session to lend memory, which l knows as a region.
func (c *Core) Lend(id SessionID, l Lender, region link.Region) { c.p2p.Lend(id, l, region) }

// Hosted returns how many ranks this sidecar hosts.
func (c *Core) Hosted() int { return len(c.hosted) }

// Talks appends the ranks that the hosted rank i has sent to, and returns the rank's number
// and its traffic to further ranks, which are not counted separately.
func (c *Core) Talks(i int, to []Talk) (rank uint32, all []Talk, rest Traffic) {
	rank = c.hosted[i].rank
	all, rest = c.p2p.Talks(rank, to)
	return rank, all, rest
}
