package p2p

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// Messages of collectives. The interface Collectives (room.go) is called when they end.

// Message is a send or a receive of a round.
type Message struct {
	Session    ranks.SessionID
	Collective uint64 // argument of the calls of Collectives
	Peer       uint32 // a world rank
	Context    uint32
	Tag        uint64
	Memory     link.Ref
	Data       ranks.Immediate // identity of the collective, of a send
	Announced  uint32          // the part of Data for which an announcement has room
}

// MessageID identifies a message of a round that has a state here. The message may have ended.
type MessageID struct {
	ID   uint64
	Send bool
}

// Parked is a message that is not received yet.
type Parked struct {
	Source uint32
	Length uint64
	Data   ranks.Immediate
}

// Send sends a message.
func (tx *sender) Send(m Message) {
	s := tx.sessions[m.Session]
	tx.startSend(s, &outgoing{
		owner: owner{session: m.Session, coll: m.Collective}, src: s.endpoint.rank, dst: m.Peer, context: m.Context,
		tag: m.Tag, total: m.Memory.Len, payload: m.Memory, class: shm.ClassArena, coll: true, data: m.Data, about: m.Announced,
	})
}

// Receive posts a receive.
func (rx *receiver) Receive(m Message) {
	r, id := rx.recvs.Alloc()
	r.owner, r.endpoint, r.coll, r.class = owner{session: m.Session, coll: m.Collective}, rx.sessions[m.Session].endpoint, true, shm.ClassArena
	r.buf, r.capacity = m.Memory, m.Memory.Len
	rx.colls.Opened(m.Collective, MessageID{ID: id})
	rx.startRecv(r, id, match.Pattern{Context: m.Context, Source: m.Peer, Tag: m.Tag})
}

// Cancel ends a message of a collective that ends early, if the message is still open. Its
// Done follows the end of the collective.
func (rm *Room) Cancel(m MessageID) {
	if m.Send {
		if st := rm.sends.Get(m.ID); st != nil {
			rm.cancelSend(m.ID, st)
		}
	} else if r := rm.recvs.Get(m.ID); r != nil {
		rm.cancelRecv(m.ID, r, shm.StatusAborted)
	}
}

// Peer returns the rank that an open message waits for. open is false if it has ended.
func (rm *Room) Peer(m MessageID) (rank uint32, open bool) {
	if m.Send {
		if st := rm.sends.Get(m.ID); st != nil {
			return st.dst, true
		}
	} else if r := rm.recvs.Get(m.ID); r != nil {
		return r.pattern.Source, true
	}
	return 0, false
}

// Parked returns the oldest message of a pattern that has arrived for an application's rank and is
// not received yet.
func (rx *receiver) Parked(s ranks.SessionID, p match.Pattern) (x Parked, ok bool) {
	q := rx.sessions[s].endpoint.colls
	if q.Parked() == 0 {
		return x, false
	}
	i, ok := q.Peek(p)
	if !ok {
		return x, false
	}
	m, _ := rx.parked.At(i)
	return Parked{Source: m.head.Src, Length: m.length, Data: m.data}, true
}
