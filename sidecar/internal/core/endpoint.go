package core

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// endpoint is a rank that this sidecar hosts. It exists from the start, so
// that messages may arrive before the application attaches.
type endpoint struct {
	rank    uint32
	index   int               // among the ranks of this sidecar
	queue   *match.Queue      // point-to-point
	colls   *match.Queue      // collectives: a space of its own
	session *session          // nil: no application is attached
	gone    bool              // was attached and has left
	ended   bool              // and nothing of it is open any more
	absent  bool              // its process has ended: it attaches no more
	probes  *match.Queue      // waiting probes: patterns only
	talks   talks             // whom it has sent to
	claimed []uint64          // messages that matched probes have taken and no receive has
	offers  map[link.Peer]int // receives that are offered to a peer
	closed  map[uint32]bool   // contexts of which it will receive nothing any more; nil: there are none
}

func newEndpoint(rank uint32, seed uint64) *endpoint {
	return &endpoint{rank: rank, queue: match.NewSeeded(seed), colls: match.NewSeeded(seed + 1), probes: match.NewSeeded(seed + 2)}
}

func (e *endpoint) space(coll bool) *match.Queue {
	if coll {
		return e.colls
	}
	return e.queue
}

// session is an attached application.
type session struct {
	ranks.Session
	endpoint *endpoint
	silent   []uint64 // silent sends that the receiver has not taken over
	deserted deserted
	lender   Lender // of memory that it registers itself; nil: it may not
	lends    link.Region
	lent     map[uint32]*lent
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
	c.collectives.Attach(&s.Session, e.index)
	c.onesided.Attach(&s.Session)
	c.sessions[id], e.session = s, s
	if c.fail != nil {
		c.tellFailure(s)
	}
	return nil
}

// Detach removes an application: in good order after OpDetach, else because it
// died, which ends the job (P§7).
func (c *Core) Detach(now int64, id SessionID, reason error) {
	c.at(now)
	s := c.sessions[id]
	if s == nil || s.Left() {
		return
	}
	s.Leave() // it is held until its ending is done
	e := s.endpoint
	e.session, e.gone = nil, true
	if reason != nil {
		c.failJob(c.blamed(e.rank, reason))
	} else {
		c.depart(e.rank)
	}
	c.begin(ending{session: s, endpoint: e, leaves: true, clean: reason == nil && c.fail == nil})
}

// Unattach undoes the attachment of an application that has read no Welcome: its rank may attach
// as if it never had. false: the application has asked for something, or has left.
func (c *Core) Unattach(now int64, id SessionID) bool {
	c.at(now)
	s := c.sessions[id]
	if s == nil || s.Left() || s.Requests() > 0 || c.fail != nil {
		return false
	}
	s.Leave()
	s.endpoint.session = nil
	c.ranks.Unhold(id)
	return true
}

// AbsentError is why a rank has ended that waited in a collective for another one, which
// had closed its session: that one is to blame.
type AbsentError struct {
	Rank uint32
	Text string
}

func (a *AbsentError) Error() string { return a.Text }

// blamed is the failure of a rank that has ended, or of one that has left before it. What an
// application says of a rank that has not left is not believed.
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

// sessionGone forgets a session that nothing refers to any more.
func (c *Core) sessionGone(id SessionID) {
	c.sessions[id] = nil
	c.collectives.SessionGone(id)
	c.onesided.SessionGone(id)
}

// Bound lets a session name its arena only where it is allocated. Without it, all is.
func (c *Core) Bound(id SessionID, p Pieces) { c.sessions[id].Bound(p) }
