package core

import (
	"cmp"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Wait is a request that has not ended, and WaitKind the kind of operation that it waits in.
type (
	Wait     = ranks.Wait
	WaitKind = ranks.WaitKind
)

// Kinds of waits.
const (
	WaitRecv     = ranks.WaitRecv
	WaitSend     = ranks.WaitSend
	WaitProbe    = ranks.WaitProbe
	WaitColl     = ranks.WaitColl
	WaitOneSided = ranks.WaitOneSided
)

// Near is an unexpected message that nearly fits a receive.
type Near = p2p.Near

// Lock is the lock of a window that ranks wait for, and Holder a rank that holds it.
type (
	Lock   = onesided.Lock
	Holder = onesided.Holder
)

// Waits describes what a rank waits for.
type Waits struct {
	Rank     uint32
	Attached bool
	Left     bool
	Oldest   []Wait // the oldest requests
	More     int    // requests that are not listed
	Own      int    // receives that a libfabric provider keeps open for itself, which are not waits
	Moving   bool   // a message of its requests is being moved, or a frame to another pod
	Others   bool   // Moving is only because of frames of other attached ranks
	Accesses Flight // frames of accesses to memory of ranks, which Moving does not count
	Near     []Near // the oldest messages that no receive waits for
	Parked   int    // number of such messages
	Locks    []Lock // locks of its windows that ranks wait for
	Past     []Wait // its last collectives, one row for consecutive ones of a kind, the latest row first

	Generation uint64 // generation of attachments that this describes, from 1
	Returns    bool   // it has left this generation, and may attach in a later one
}

// Flight tells of frames to other pods that are not acknowledged.
type Flight struct {
	Any bool // there are such frames
	Own bool // one of them may be of the rank
}

// add adds a frame.
func (f *Flight) add(other bool) { f.Any, f.Own = true, f.Own || !other }

// Bounds of the lists of one rank.
const (
	waitsReported = 4
	nearReported  = 4
)

// WaitsOf returns what the i-th hosted rank waits for. It visits each request of the rank
// once.
func (c *Core) WaitsOf(i int) Waits {
	e := c.hosted[i]
	w := Waits{
		Rank: e.rank, Generation: c.gen, Attached: e.session != nil, Left: e.gone && !c.mayReturn(e), Returns: e.gone && !e.absent && !c.leaving,
		Locks: c.onesided.Locks(e.rank), Past: c.collectives.Past(i),
	}
	near, parked := c.p2p.NearOf(e.rank, nearReported)
	w.Parked = parked
	if e.session == nil {
		return w
	}
	w.Near = near
	frames, accesses := c.inFlight(e)
	own := frames.Own
	w.Moving, w.Accesses = frames.Any, accesses
	var oldest []ranks.Request
	for i := range e.session.Requests() {
		q := e.session.Request(uint32(i))
		if q.Kind == ranks.RequestFree || q.Kind == ranks.RequestSend && q.ID == 0 {
			continue // a send without a state ends when its frame is acknowledged
		}
		if c.p2p.Own(q) {
			w.Own++
			continue
		}
		w.More++
		own = own || c.moving(q)
		at, _ := slices.BinarySearchFunc(oldest, q.Since, func(o ranks.Request, since int64) int { return cmp.Compare(o.Since, since) })
		if at < waitsReported {
			oldest = slices.Insert(oldest, at, q)
			oldest = oldest[:min(len(oldest), waitsReported)]
		}
	}
	for _, q := range oldest {
		if x, ok := c.waitOf(q); ok {
			x.Since = q.Since
			w.Oldest = append(w.Oldest, x)
		}
	}
	w.More -= len(w.Oldest)
	w.Moving, w.Others = w.Moving || own, w.Moving && !own
	return w
}

// mayReturn reports whether a rank that has left may attach again in the next generation,
// which other pods have begun already. Messages may still come from such a rank.
func (c *Core) mayReturn(e *endpoint) bool { return c.wanted > c.gen && !e.absent && !c.leaving }

// framesVisited bounds the frames that inFlight visits.
const framesVisited = 1024

// inFlight returns the frames that peers which are not lost have not acknowledged, those of accesses apart.
// The frames are in flight, however slow, or the connection has to be made again.
func (c *Core) inFlight(e *endpoint) (frames, accesses Flight) {
	visited := 0
	for i := range c.peers {
		p := &c.peers[i]
		if p.State() == channel.Dead || p.State() == channel.Rejected {
			continue
		}
		for seq := p.Out().Base() + 1; seq <= p.Out().Last(); seq++ {
			if visited++; visited > framesVisited {
				frames.add(false)
				return frames, accesses
			}
			other := c.ofOther(e, p.Out(), seq)
			if h := &p.Out().At(seq).Head; h.Type == wire.Eager && shm.OfAccess(h.Context) {
				accesses.add(other)
				continue
			}
			frames.add(other)
		}
	}
	return frames, accesses
}

// ofOther reports whether a frame is known to be of another attached rank: it has a message, or memory,
// of that rank.
func (c *Core) ofOther(e *endpoint, o *channel.Outbox, seq uint64) bool {
	if r := o.ReleaseAt(seq); r.Hold {
		s := c.sessions[r.Session]
		return s != nil && s.endpoint != e && s.endpoint.session == s
	}
	h := &o.At(seq).Head
	if h.Type != wire.Eager && h.Type != wire.RTS {
		return false
	}
	other := c.endpoints[h.Src]
	return other != nil && other != e && other.session != nil
}

// moving reports whether the message or access that a request waits for is in flight.
func (c *Core) moving(q ranks.Request) bool {
	if q.Kind == ranks.RequestOrigin {
		return c.onesided.Moving(q.ID)
	}
	return c.p2p.Moving(q)
}

// waitOf describes a request.
func (c *Core) waitOf(q ranks.Request) (w Wait, ok bool) {
	switch q.Kind {
	case ranks.RequestColl:
		return c.collectives.WaitOf(q.ID)
	case ranks.RequestOrigin:
		return c.onesided.WaitOf(q.ID)
	}
	return c.p2p.WaitOf(q)
}
