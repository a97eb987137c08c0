package core

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// endpoint is a rank that this sidecar hosts. It exists from the start, so
// that messages may arrive before the application attaches.
type endpoint struct {
	rank    uint32
	index   int          // among the ranks of this sidecar
	queue   *match.Queue // point-to-point
	colls   *match.Queue // collectives: a space of its own
	session *session     // nil: nobody is attached
	gone    bool         // was attached and has left
	ended   bool         // and nothing of it is open any more
	absent  bool         // its process has ended: it attaches no more
	probes  *match.Queue // waiting probes: patterns only
	talks   talks        // whom it has sent to
	claimed []uint64     // messages that matched probes have taken and nobody has received
	wins    map[uint32]*window
	offers  map[link.Peer]int // receives that are offered to a peer
	backlog int               // messages that no link has taken
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
	id       SessionID
	endpoint *endpoint
	withheld uint8 // flags of completions that its client does not know
	slab     link.Ref
	arena    link.Ref
	pieces   pieces
	requests []request // by the client's request number
	open     int       // requests in use
	allowed  *allowance
	kept     int64    // of it
	flushes  int      // flushes of all peers under way
	silent   []uint64 // silent sends that the receiver has not taken over
	holds    int      // frames, placements and remote operations that refer to its memory
	left     bool     // detached or dead: no completions any more
	now      int64    // of the descriptor that is being taken
	deserted deserted
	lender   Lender // of memory that it registers itself; nil: it may not
	lends    link.Region
	lent     map[uint32]*lent
}

// request is what a client's request number stands for.
type request struct {
	kind  requestKind
	id    uint64
	since int64
}

type requestKind uint8

const (
	requestFree requestKind = iota
	requestSend
	requestRecv
	requestProbe
	requestColl
	requestOrigin
	requestPlain // completed by the core without a state of its own
)

// flagsAgreed are the flags of an OpDone that need a feature of the client (L§4.3).
var flagsAgreed = []struct {
	feature uint64
	flag    uint8
}{{shm.FeatureData, shm.FlagData}, {shm.FeatureTypes, shm.FlagTyped}}

// withheld are the flags that a client with these features does not know.
func withheld(features uint64) (flags uint8) {
	for _, f := range flagsAgreed {
		if features&f.feature == 0 {
			flags |= f.flag
		}
	}
	return flags
}

// Attach adds an application that speaks for rank, and whose client has features. The refs
// are its slab and arena.
func (c *Core) Attach(now int64, id SessionID, rank uint32, features uint64, slab, arena link.Ref) error {
	c.now = now
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
	s := &session{id: id, endpoint: e, withheld: withheld(features), slab: slab, arena: arena, allowed: &c.ofRanks, pieces: pieces{to: arena.Len}}
	c.collectives.Attach(id, rank, e.index, arena.Off)
	c.sessions[id], e.session = s, s
	if c.fail != nil {
		c.tellFailure(s)
	}
	return nil
}

// Detach removes an application: in good order after OpDetach, else because it
// died, which ends the job (P§7).
func (c *Core) Detach(now int64, id SessionID, reason error) {
	c.now = now
	s := c.sessions[id]
	if s == nil || s.left {
		return
	}
	s.holds++ // until its ending is done
	s.left = true
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
	c.now = now
	s := c.sessions[id]
	if s == nil || s.left || len(s.requests) > 0 || c.fail != nil {
		return false
	}
	s.holds++
	s.left, s.endpoint.session = true, nil
	c.unhold(id)
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
	case int(a.Rank) < len(c.cfg.PodOf) && (c.hasLeft(a.Rank) || c.peerOf(a.Rank).bye):
		rank = a.Rank
	default:
		reason = errors.New(podlife.TextVanished)
	}
	return &Failure{Rank: rank, Code: 1, Reason: reason.Error()}
}

// Left reports whether an application has been detached.
func (c *Core) Left(id SessionID) bool {
	s := c.sessions[id]
	return s == nil || s.left
}

func (c *Core) hold(id SessionID) { c.sessions[id].holds++ }

// unhold ends a reference to a session's memory; the last one after the
// session has left lets the memory go.
func (c *Core) unhold(id SessionID) {
	s := c.sessions[id]
	s.holds--
	if s.left && s.holds == 0 {
		c.sessions[id] = nil
		s.refund(s.kept)
		c.collectives.SessionGone(id)
		c.ports.Freed(id)
	}
}

// take claims the client's request number.
func (s *session) take(req uint32, kind requestKind, id uint64) error {
	if req >= shm.MaxRequests {
		return fmt.Errorf("request number %d, want below %d", req, shm.MaxRequests)
	}
	if more := int64(req) + 1 - int64(len(s.requests)); more > 0 {
		if err := s.charge(more * memory.NumberCost); err != nil {
			return err
		}
		s.requests = append(s.requests, make([]request, more)...)
	}
	if s.requests[req].kind != requestFree {
		return fmt.Errorf("request number %d is in use", req)
	}
	if err := s.charge(memory.RequestCost); err != nil {
		return err
	}
	s.requests[req] = request{kind, id, s.now}
	s.open++
	return nil
}

// finish ends a request that needs no more than a status.
func (c *Core) finish(id SessionID, req uint32, status shm.Status) {
	d := shm.Descriptor{Op: shm.OpDone, Req: req, Status: status}
	c.complete(id, &d)
}

// complete publishes the end of a request and frees its number.
func (c *Core) complete(id SessionID, d *shm.Descriptor) {
	s := c.sessions[id]
	if s == nil || s.left {
		return
	}
	s.requests[d.Req] = request{}
	s.open--
	s.refund(memory.RequestCost)
	if d.Flags&s.withheld != 0 { // and what the context says by them
		d.Flags, d.Context = d.Flags&^s.withheld, 0
	}
	c.publish(id, d)
}

// publish hands d to the application. The copy keeps descriptors of callers on
// their stacks: what goes through an interface would be allocated.
func (c *Core) publish(id SessionID, d *shm.Descriptor) {
	if d != &c.scratch {
		c.scratch = *d
	}
	c.ports.Complete(id, &c.scratch)
}

// memory finds the range that a descriptor names, or an error: the client lied.
func (s *session) memory(class shm.Class, addr, length uint64) (link.Ref, error) {
	var base link.Ref
	switch class {
	case shm.ClassSlab:
		base = s.slab
	case shm.ClassArena:
		base = s.arena
	case shm.ClassNone:
		if length == 0 {
			return link.Ref{}, nil
		}
		fallthrough
	default:
		return link.Ref{}, fmt.Errorf("class %d names no memory", class)
	}
	if length > base.Len || addr > base.Len-length {
		return link.Ref{}, fmt.Errorf("range of %d bytes at %d is outside the %d bytes of class %d", length, addr, base.Len, class)
	}
	if class == shm.ClassArena && !s.pieces.hold(addr, length) {
		return link.Ref{}, fmt.Errorf("range of %d bytes at %d is outside the allocated pieces of the arena", length, addr)
	}
	return base.Slice(addr, length), nil
}
