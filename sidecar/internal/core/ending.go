package core

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// ending is the end of everything that an application has open: it has left, or
// the job has failed. It is done in steps (Advance): its requests, its silent sends,
// and of a rank that leaves its windows and the messages that nobody will receive.
type ending struct {
	session  *session  // nil: of a rank that never attached
	endpoint *endpoint // of a rank that leaves
	leaves   bool      // the session is over; else it stays attached to a failed job
	clean    bool      // it said goodbye
	request  int       // next of the session's requests
}

// begin queues an ending and does as much of it as a step may. Preconditions:
// the session is held, or stays attached.
func (c *Core) begin(x ending) {
	c.endings = append(c.endings, x)
	if len(c.endings) == 1 {
		c.endSessions(advanceItems)
	}
}

// endSessions does up to budget items of the oldest endings, and returns what is
// left of the budget.
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
			c.sayBye()
			if done.session != nil {
				c.ranks.Unhold(done.session.ID())
			}
		}
	}
	return budget
}

// endStep goes on with one ending; 0: the budget is used up.
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
	for i := len(s.silent) - 1; i >= 0 && budget > 0; i-- {
		// From the end, so that those that stay are passed once.
		if st := c.sends.Get(s.silent[i]); st != nil && !c.orphan(x, st) {
			c.forsake(s.silent[i], st)
		} else {
			s.silent = s.silent[:i]
		}
		budget--
	}
	if len(s.silent) > 0 || !x.leaves {
		return budget
	}
	return c.endEndpoint(x.endpoint, budget)
}

// orphan lets a send outlive its session whose bytes are the engine's own: it
// said goodbye after it had sent them.
func (c *Core) orphan(x *ending, st *send) bool {
	if !x.clean || st.held || st.staged || st.sync {
		return false
	}
	st.orphan = true
	c.orphans++
	return true
}

// endRequest ends one request of an application. It stays open when something
// under way ends it: the acknowledgement of a frame, or the last word of a peer.
func (c *Core) endRequest(x *ending, req uint32) {
	s := x.session
	switch q := s.Request(req); q.Kind {
	case ranks.RequestSend:
		if st := c.sends.Get(q.ID); st != nil && q.ID != 0 && !c.orphan(x, st) {
			c.forsake(q.ID, st)
		}
	case ranks.RequestRecv:
		if r := c.recvs.Get(q.ID); r != nil {
			c.abandon(q.ID, r, shm.StatusAborted)
		}
	case ranks.RequestProbe:
		c.dropProbe(s.endpoint, q.ID)
		c.ranks.Finish(s.ID(), req, shm.StatusAborted)
	case ranks.RequestColl:
		c.collectives.End(q.ID, shm.StatusAborted)
	case ranks.RequestOrigin:
		c.onesided.End(q.ID, shm.StatusAborted)
	}
}

// forsake ends a send that its receiver has not taken over. One that waits for a
// part of it is told; one that asks later is told then (onPull).
func (c *Core) forsake(id uint64, st *send) {
	if st.move.Open() && c.fail == nil {
		c.tellEnded(c.peerOf(st.dst), st.move.Remote)
	}
	c.endSend(id, st, shm.StatusAborted, false)
}

// tellEnded tells a receiver that what it has asked for does not come.
func (c *Core) tellEnded(p *peer, request uint64) {
	if c.over(p) {
		return
	}
	f := c.channel.Answer(p.Peer, wire.Ended)
	f.Head.A, f.Head.B = request, uint64(c.job.Refusal())
}

// abandon ends a receive that is not complete. The sender of a message that it
// had matched is told that nobody waits for it any more.
func (c *Core) abandon(id uint64, r *recv, status shm.Status) {
	if r.offered && !c.hasCome(r) {
		c.unmet[id] = true
	}
	if !r.matched {
		r.endpoint.space(r.coll).Cancel(r.posted)
	} else if r.move.Remote != 0 && c.fail == nil {
		if r.move.Reading() {
			// The link still reads from the sender: it is told then.
			c.remotes.Get(r.token).refuse = true
		} else {
			c.tellFin(&c.peers[r.peer], r.move.Remote, shm.StatusPeerLeft)
		}
	}
	c.endRecv(id, r, status)
}

func (c *Core) tellFin(p *peer, remote uint64, status shm.Status) {
	if c.over(p) {
		return
	}
	f := c.channel.Answer(p.Peer, wire.Fin)
	f.Head.A, f.Head.B = remote, uint64(status)
}

// endEndpoint refuses what nobody will receive any more and closes the windows
// of a rank that has left.
func (c *Core) endEndpoint(e *endpoint, budget int) int {
	budget = c.onesided.CloseWindows(e.rank, budget)
	for len(e.claimed) > 0 {
		if budget == 0 {
			return 0
		}
		budget--
		id := e.claimed[len(e.claimed)-1]
		c.refuseParked(id, c.parked.Get(id), shm.StatusPeerLeft)
	}
	for _, coll := range []bool{false, true} {
		q := e.space(coll)
		q.EachParked(func(h uint32) bool {
			if budget == 0 {
				return false
			}
			budget--
			m, id := c.parked.At(h)
			q.Drop(m.ref)
			c.refuseParked(id, m, shm.StatusPeerLeft)
			return true
		})
	}
	if budget > 0 {
		e.queue, e.colls = match.New(), match.New() // their memory goes
	}
	return budget
}

// refuseParked ends a message that nobody will receive: its sender is told, its
// memory and credit go back.
func (c *Core) refuseParked(id uint64, m *message, status shm.Status) {
	if t, waits := c.refusalOf(m); waits {
		// No answer: the peer has not asked for it, a rank has left, and all of its
		// messages end at once.
		f, _ := c.channel.Emit(c.peers[m.peer].Peer, t)
		refusing(&f.Head, &m.head, status)
	}
	c.unclaim(m)
	if m.arriving {
		m.dropped = true // freed when it is here
	} else {
		c.freeMessage(id, m)
	}
}
