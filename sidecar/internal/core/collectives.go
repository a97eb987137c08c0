package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/collective"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// The room of collectives lies between this package and what carries messages, which is in
// this package, too: host is the latter, as the room knows it.
type host struct{ c *Core }

var (
	_ collective.Messages = host{}
	_ collective.Job      = host{}
)

func (c *Core) openCollectives() (err error) {
	h := host{c}
	cfg := collective.Config{Self: c.cfg.Self, PodOf: c.cfg.PodOf, Hosted: len(c.hosted), VectorPiece: c.cfg.limits.VectorPiece}
	c.collectives, err = collective.New(cfg, c.ports, c.ranks, h, h)
	return err
}

// submitReduced goes on after a user operation.
func (c *Core) submitReduced(s *session, d *shm.Descriptor) error {
	switch q := s.Request(d.Req); q.Kind {
	case ranks.RequestFree:
		return nil // ended meanwhile
	case ranks.RequestColl:
		return c.collectives.Reduced(d.Req, q.ID)
	}
	return fmt.Errorf("request %d is no collective", d.Req)
}

// settle ends the job for a disagreement that was noted.
func (c *Core) settle() {
	if d := c.collectives.Dispute(); d != nil {
		c.failJob(&Failure{Rank: d.Rank, Code: 1, Reason: d.Reason})
	}
}

func (h host) Send(m collective.Message) {
	s := h.c.sessions[m.Session]
	h.c.startSend(s, &outgoing{
		owner: owner{session: m.Session, coll: m.Collective}, src: s.endpoint.rank, dst: m.Peer, context: m.Context,
		tag: m.Tag, total: m.Memory.Len, payload: m.Memory, class: shm.ClassArena, coll: true, data: m.Data, about: m.Announced,
	})
}

func (h host) Receive(m collective.Message) {
	r, id := h.c.recvs.Alloc()
	r.owner, r.endpoint, r.coll, r.class = owner{session: m.Session, coll: m.Collective}, h.c.sessions[m.Session].endpoint, true, shm.ClassArena
	r.buf, r.capacity = m.Memory, m.Memory.Len
	h.c.collectives.Opened(m.Collective, collective.MessageID{ID: id})
	h.c.startRecv(r, id, match.Pattern{Context: m.Context, Source: m.Peer, Tag: m.Tag})
}

func (h host) Cancel(m collective.MessageID) {
	if m.Send {
		if st := h.c.sends.Get(m.ID); st != nil {
			h.c.forsake(m.ID, st)
		}
	} else if r := h.c.recvs.Get(m.ID); r != nil {
		h.c.abandon(m.ID, r, shm.StatusAborted)
	}
}

func (h host) Peer(m collective.MessageID) (rank uint32, open bool) {
	if m.Send {
		if st := h.c.sends.Get(m.ID); st != nil {
			return st.dst, true
		}
	} else if r := h.c.recvs.Get(m.ID); r != nil {
		return r.pattern.Source, true
	}
	return 0, false
}

func (h host) Parked(s SessionID, p match.Pattern) (x collective.Parked, ok bool) {
	q := h.c.sessions[s].endpoint.colls
	if q.Parked() == 0 {
		return x, false
	}
	i, ok := q.Peek(p)
	if !ok {
		return x, false
	}
	m, _ := h.c.parked.At(i)
	return collective.Parked{Source: m.head.Src, Length: m.length, Data: m.data}, true
}

func (h host) HasLeft(rank uint32) bool { return h.c.job.HasLeft(rank) }

func (h host) Failed() bool { return h.c.fail != nil }

func (h host) Began(rank uint32, kind coll.Kind, bytes uint64, number uint32) {
	h.c.ports.Note(NoteColl, h.c.cfg.Self, rank, uint64(kind), bytes, uint64(number))
}
