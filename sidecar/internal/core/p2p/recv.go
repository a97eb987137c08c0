package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// recv is a receive, from its submission to its end.
type recv struct {
	owner    owner
	endpoint *endpoint
	coll     bool
	posted   match.Ref
	matched  bool

	class    shm.Class
	buf      link.Ref // buffer of the application; none for inline and staged receives
	capacity uint64
	inline   [shm.InlineMax]byte

	// The message, once matched.
	source  uint32
	tag     uint64
	length  uint64
	data    ranks.Immediate
	elem    uint8  // type of its elements; 0: not given
	want    uint64 // min(length, capacity)
	peer    link.Peer
	pattern match.Pattern // pattern of the messages that the receive accepts

	offered   bool // the receive is offered to the sender (ready.go)
	withdrawn bool // the sender was asked to give the offer back
	replies   bool // a message names it as the receive for its reply
	refused   bool // there will be no reply
	covered   byte // the byte of the buffer that the guard replaces

	move   rendezvous.Target // state of a rendezvous
	token  uint64            // token of the remote read
	eager  link.Ref          // payload in the pool, of a staged receive
	parked bool              // eager is in use
	chunks chunkQueue
	given  uint64 // bytes of chunks supplied
	lent   lentRange
	asked  bool // the receive's application was asked for chunks
}

func (rx *receiver) submitRecv(s *session, d *shm.Descriptor) error {
	if d.Peer != shm.AnySource {
		if err := rx.job.Check(d.Peer); err != nil {
			return err
		}
	}
	r, id := rx.recvs.Alloc()
	err := rx.fillRecv(s, r, d)
	if err == nil {
		err = s.claimRecv(d.Req, r, id)
	}
	if err != nil {
		rx.recvs.Release(id)
		return err
	}
	rx.startRecv(r, id, match.Pattern{Context: d.Context, Source: d.Peer, Tag: d.Tag, Ignore: d.Aux()})
	return nil
}

// claimRecv claims the client's request number for r. From then on r uses its memory.
func (s *session) claimRecv(req uint32, r *recv, id uint64) error {
	if err := s.Claim(req, ranks.RequestRecv, id); err != nil {
		return err
	}
	if r.lent.of != nil {
		r.lent.of.uses++
	}
	return nil
}

// fillRecv fills r from the descriptor.
func (rx *receiver) fillRecv(s *session, r *recv, d *shm.Descriptor) error {
	r.owner = owner{session: s.ID(), req: d.Req}
	r.endpoint, r.class = s.endpoint, d.Class
	switch d.Class {
	case shm.ClassInline:
		if d.InlineLen > shm.InlineMax {
			return fmt.Errorf("inline capacity of %d bytes", d.InlineLen)
		}
		r.capacity = uint64(d.InlineLen)
	case shm.ClassStaged:
		r.capacity = d.Len()
	case shm.ClassExposed:
		lent, err := s.lentMemory(d.Addr(), d.Len())
		if err != nil {
			return err
		}
		r.class, r.capacity, r.lent = shm.ClassStaged, d.Len(), lent
	default:
		ref, err := s.Memory(d.Class, d.Addr(), d.Len())
		if err != nil {
			return err
		}
		r.buf, r.capacity = ref, d.Len()
	}
	return nil
}

// startRecv takes the oldest unexpected message that matches, or posts r.
func (rx *receiver) startRecv(r *recv, id uint64, p match.Pattern) {
	r.pattern = p
	q := r.endpoint.space(r.coll)
	h, ok := q.Take(p)
	rx.charge(q)
	if ok {
		rx.stats.Unexpected++
		m, mid := rx.parked.At(h)
		rx.matchParked(r, id, m, mid)
		return
	}
	if p.Source != match.AnySource {
		from := rx.peerOf(p.Source)
		switch {
		case rx.job.HasLeft(p.Source):
			rx.sessions[r.owner.session].noteDeparted(rx.channel.Now(), p.Source)
			rx.endRecv(id, r, shm.StatusPeerLeft)
			return
		case from.State() == channel.Dead:
			rx.endRecv(id, r, rx.job.Lost(from.ID()))
			return
		}
		// Without a connection the end of the peer would not be noticed. (A receive from any
		// source ends with the first failure that any sidecar notices.)
		rx.channel.Reach(from.Peer)
	}
	if q.Full(p) {
		rx.endRecv(id, r, shm.StatusUnsupported)
		return
	}
	offer := p.Source != match.AnySource && rx.mayOffer(r, rx.peerOf(p.Source), &p)
	r.posted = q.Post(p, uint32(id))
	rx.recordRecv(r, &p)
	if offer {
		rx.offer(rx.peerOf(p.Source), r, id, &p)
	}
}

// recordRecv notes a receive of the program that waits in the flight recorder.
func (rx *receiver) recordRecv(r *recv, p *match.Pattern) {
	if r.coll {
		return
	}
	peer := link.Peer(-1)
	if p.Source != match.AnySource {
		peer = rx.peerOf(p.Source).ID()
	}
	rx.ports.Note(ranks.NoteRecv, peer, r.endpoint.rank, p.Tag, r.capacity, uint64(p.Source))
}

// charge counts the cost of a search among unexpected messages.
func (rx *receiver) charge(q *match.Queue) { rx.effort += ranks.StepEffort * q.Steps() }

// bind records the message that r has matched.
func (rx *receiver) bind(r *recv, p *peer, h *wire.Header, length uint64, data ranks.Immediate) {
	r.matched = true
	r.source, r.tag, r.length, r.peer, r.data, r.elem = h.Src, h.Tag, length, p.ID(), data, h.Elem
	if r.coll {
		rx.colls.Matched(r.owner.coll, h.Src, data, length, r.capacity)
	}
	r.want = min(length, r.capacity)
	r.move.Want = r.want
}

// endRecv completes r and releases it.
func (rx *receiver) endRecv(id uint64, r *recv, status shm.Status) {
	if r.offered && status == shm.StatusOK {
		rx.countOffer(r)
	}
	rx.closeOffer(r, false)
	if key, ok := r.move.Key(); ok {
		rx.endKey(r.peer, key, status == shm.StatusOK)
	}
	if r.parked {
		rx.dropEager(r)
	}
	if status == shm.StatusOK && r.length > r.capacity {
		status = shm.StatusTruncated
	}
	o, lent := r.owner, r.lent.of
	if o.coll != 0 {
		rx.recvs.Release(id)
		rx.colls.Done(o.coll, status)
		return
	}
	// Built in place, because each small message ends here.
	d := rx.ranks.Scratch()
	*d = shm.Descriptor{}
	d.Op, d.Req, d.Status, d.Peer, d.Tag = shm.OpDone, o.req, status, r.source, r.tag
	if r.class == shm.ClassInline && status == shm.StatusOK {
		d.SetInline(r.inline[:r.want])
	} else {
		d.SetBody(0, r.length, 0, 0)
	}
	if !r.matched {
		d.Peer = shm.AnySource
	}
	r.data.Tell(d)
	if r.elem != 0 {
		d.Flags |= shm.FlagTyped
		d.Context = uint32(r.elem)
	}
	if r.class == shm.ClassStaged {
		done := *d // returning chunks overwrites the scratch
		rx.returnRecvChunks(r)
		*d = done
	}
	rx.recvs.Release(id)
	rx.ranks.Complete(o.session, d)
	if lent != nil {
		rx.endLent(o.session, lent)
	}
}

// copyIn copies a payload that has arrived with its frame into r's buffer, at off.
// Preconditions: off+len(b) <= r.want; r is not staged.
func (rx *receiver) copyIn(r *recv, off uint64, b []byte) {
	if r.class == shm.ClassInline {
		copy(r.inline[off:], b)
		return
	}
	copy(rx.ports.Bytes(r.buf.Slice(off, uint64(len(b)))), b)
}
