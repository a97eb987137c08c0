package p2p

import (
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// message is a message that arrived before its receive: an eager one with its payload in the pool,
// or the announcement of a rendezvous.
type message struct {
	endpoint   *endpoint
	head       wire.Header
	peer       link.Peer
	length     uint64
	payload    link.Ref     // payload in the pool; none if it is empty, or for a rendezvous
	offer      wire.RTSBody // announcement of a rendezvous
	data       ranks.Immediate
	ref        match.Ref
	eager      bool
	arriving   bool   // the link is still reading the payload
	waiter     uint64 // receive that has matched the message meanwhile
	dropped    bool   // no receive will take the message; it is freed when it has arrived
	claimed    bool   // taken by a matched probe
	claimIndex int    // index in its endpoint's claimed
	coll       bool
}

func envelope(h *wire.Header) match.Envelope {
	return match.Envelope{Context: h.Context, Source: h.Src, Tag: h.Tag}
}

// arrive matches a message with the posted receives of its endpoint. It returns the receive and its
// id, or 0 if there is none.
func (rx *receiver) arrive(e *endpoint, h *wire.Header) (*recv, uint64) {
	q := e.space(h.Flags&wire.FlagColl != 0)
	for {
		i, ok := q.Arrive(envelope(h))
		if !ok {
			return nil, 0
		}
		r, id := rx.recvs.At(i)
		if r.offered && !rx.meetOffered(r, id) {
			continue
		}
		rx.stats.Expected++
		return r, id
	}
}

// park keeps a message until it is received. The caller fills its payload in, if it has one.
func (rx *receiver) park(p *peer, e *endpoint, h *wire.Header, length uint64, payload link.Ref, data ranks.Immediate) (*message, uint64) {
	m, id := rx.parked.Alloc()
	*m = message{
		endpoint: e, head: *h, peer: p.ID(), length: length, payload: payload, eager: h.Type == wire.Eager,
		coll: h.Flags&wire.FlagColl != 0, data: data,
	}
	if key, kept := m.retractKey(); kept {
		rx.retractables[key] = id
	}
	if m.coll && e.session != nil {
		rx.colls.Parked(e.session.ID(), h.Context, h.Tag, h.Src, length, data)
	}
	if rx.offerToProbes(e, m, id) {
		return m, id
	}
	m.ref = e.space(m.coll).Park(envelope(h), uint32(id))
	return m, id
}

// matchParked gives a parked message to a receive.
func (rx *receiver) matchParked(r *recv, rid uint64, m *message, mid uint64) {
	p := &rx.peers[m.peer]
	rx.bind(r, p, &m.head, m.length, m.data)
	if m.arriving {
		m.waiter = rid
		return
	}
	if m.eager {
		rx.deliverParked(r, rid, m, mid)
		return
	}
	remote, offer := m.head.B, m.offer
	rx.freeMessage(mid, m)
	rx.startRendezvous(r, rid, remote, &offer)
}

// deliverParked moves an eager message that has arrived whole to its receive.
func (rx *receiver) deliverParked(r *recv, rid uint64, m *message, mid uint64) {
	p := &rx.peers[m.peer]
	rx.sendMatched(p, &m.head, shm.StatusOK)
	payload := m.payload
	if r.class == shm.ClassStaged && r.want > 0 {
		// The payload stays in the pool until the application has
		// supplied memory for it.
		rx.forgetParked(mid, m)
		r.eager, r.parked = payload, true
		rx.requestChunks(r)
		return
	}
	if r.want > 0 {
		rx.copyIn(r, 0, rx.ports.Bytes(payload.Slice(0, r.want)))
	}
	rx.freeMessage(mid, m)
	rx.endRecv(rid, r, shm.StatusOK)
}

// dropEager gives back the pool memory and the credit of r's eager message.
func (rx *receiver) dropEager(r *recv) {
	r.parked = false
	rx.unpark(&rx.peers[r.peer], r.eager, r.length)
}

// freeMessage ends a parked message; its credit goes back to its sender.
func (rx *receiver) freeMessage(id uint64, m *message) {
	if m.eager {
		rx.unpark(&rx.peers[m.peer], m.payload, m.length)
	} else {
		p := &rx.peers[m.peer]
		p.announced--
		p.Account().Refund(memory.AnnounceCost)
	}
	rx.forgetParked(id, m)
}

// forgetParked forgets a parked message.
func (rx *receiver) forgetParked(id uint64, m *message) {
	if key, kept := m.retractKey(); kept {
		delete(rx.retractables, key)
	}
	rx.parked.Release(id)
}

// refuseMessage notifies the sender of a message that is just arriving that it will not be
// received.
func (rx *receiver) refuseMessage(m *message, status shm.Status) {
	if t, waits := rx.refusalOf(m); waits {
		refusing(&rx.channel.Answer(rx.peers[m.peer].Peer, t).Head, &m.head, status)
	}
}

// refusing fills in f, the frame that reports the end of the message with the header h.
func refusing(f, h *wire.Header, status shm.Status) {
	if h.Flags&wire.FlagReply != 0 {
		if status == shm.StatusOK {
			status = shm.StatusPeerLeft // its receiver has thrown it away
		}
		if f.Type == wire.Matched {
			f.Flags |= wire.FlagReply
		}
	}
	f.A, f.B = h.B, uint64(status)
}

// refusalOf returns the type of the frame that notifies a message's sender of its end. waits
// is false if the sender waits for none.
func (rx *receiver) refusalOf(m *message) (t wire.Type, waits bool) {
	switch {
	case rx.peers[m.peer].over():
		return 0, false
	case !m.eager:
		return wire.Fin, true
	}
	return wire.Matched, m.head.Flags&(wire.FlagSync|wire.FlagReply) != 0 && m.head.Type == wire.Eager
}

// sendMatched answers a synchronous eager message (P§5.1), and one that wants a reply if it was not
// received.
func (rx *receiver) sendMatched(p *peer, h *wire.Header, status shm.Status) {
	wanted := h.Flags&wire.FlagSync != 0 || h.Flags&wire.FlagReply != 0 && status != shm.StatusOK
	if !wanted || h.Type != wire.Eager || p.over() {
		return
	}
	refusing(&rx.channel.Answer(p.Peer, wire.Matched).Head, h, status)
}
