package ranks

import (
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Ports are the actions of the sessions.
type Ports interface {
	// Complete publishes d to the application.
	Complete(s SessionID, d *shm.Descriptor)
	// Freed reports that nothing refers to the memory of a session that has left any more.
	Freed(s SessionID)
}

// Sessions are the attached applications. They report the ends of requests to the applications, and
// the end of the last reference to an application's memory to the owner.
type Sessions struct {
	list     []*Session // by number; nil: none
	ports    Ports
	gone     func(SessionID)
	allowed  *Allowance
	outlived int64          // bytes charged to allowed for requests that have outlived their sessions
	scratch  shm.Descriptor // scratch of Publish
}

// NewSessions makes an empty set. Requests count against allowed. gone is called for a session before
// its number is free.
func NewSessions(ports Ports, allowed *Allowance, gone func(SessionID)) *Sessions {
	return &Sessions{ports: ports, allowed: allowed, gone: gone}
}

// Attach makes s the application of a rank, whose client has features. The refs are its slab
// and arena. Preconditions: the number is free.
func (x *Sessions) Attach(s *Session, id SessionID, rank uint32, features uint64, slab, arena link.Ref) {
	for int(id) >= len(x.list) {
		x.list = append(x.list, nil)
	}
	*s = Session{id: id, rank: rank, withheld: withheld(features), slab: slab, arena: arena, allowed: x.allowed, pieces: pieces{to: arena.Len}}
	x.list[id] = s
}

// Get returns a session, or nil.
func (x *Sessions) Get(id SessionID) *Session { return x.list[id] }

// Hold begins a reference to a session's memory.
func (x *Sessions) Hold(id SessionID) { x.list[id].holds++ }

// Unhold ends a reference to a session's memory. The last one after the session has left frees the
// memory.
func (x *Sessions) Unhold(id SessionID) {
	s := x.list[id]
	s.holds--
	if s.left && s.holds == 0 {
		x.list[id] = nil
		s.Refund(s.kept)
		x.gone(id)
		x.ports.Freed(id)
	}
}

// Outlive keeps the charge for the state of a request that stays when the request has ended for
// its session, whose charge is given back when it has gone. The state counts as one of all ranks
// until EndOutlived, so that ranks that leave one after the other keep no more than the bound.
func (x *Sessions) Outlive(id SessionID) {
	if s := x.list[id]; s.left { // else Complete gives it back
		s.Refund(memory.RequestCost)
	}
	x.allowed.Add(&x.outlived, memory.RequestCost)
}

// EndOutlived ends such a charge.
func (x *Sessions) EndOutlived() { x.allowed.Add(&x.outlived, -memory.RequestCost) }

// Finish ends a request whose completion has only a status.
func (x *Sessions) Finish(id SessionID, req uint32, status shm.Status) {
	d := shm.Descriptor{Op: shm.OpDone, Req: req, Status: status}
	x.Complete(id, &d)
}

// Complete publishes the end of a request and frees its number.
func (x *Sessions) Complete(id SessionID, d *shm.Descriptor) {
	s := x.list[id]
	if s == nil || s.left {
		return
	}
	s.requests[d.Req] = Request{}
	s.open--
	s.Refund(memory.RequestCost)
	if d.Flags&s.withheld != 0 { // and the context, which belongs to the flags
		d.Flags, d.Context = d.Flags&^s.withheld, 0
	}
	x.Publish(id, d)
}

// Publish hands d to the application. The copy keeps descriptors of callers on their stacks: a pointer
// that goes through an interface is allocated.
func (x *Sessions) Publish(id SessionID, d *shm.Descriptor) {
	if d != &x.scratch {
		x.scratch = *d
	}
	x.ports.Complete(id, &x.scratch)
}

// Scratch returns a descriptor that Complete and Publish use without a copy.
func (x *Sessions) Scratch() *shm.Descriptor { return &x.scratch }
