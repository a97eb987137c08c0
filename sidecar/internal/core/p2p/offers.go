package p2p

import (
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// Offers of a peer's receives (P§5.4), at the sender.

// offerKey is the envelope by which messages and offers are matched.
type offerKey struct {
	src, dst uint32
	context  uint32
	tag      uint64
	coll     bool
}

// offered is a receive of a peer that may be written to.
type offered struct {
	request  uint64
	capacity uint64
	body     wire.ReadyBody
}

// offers are the receives that one peer has offered, and the messages that were sent to it lately.
type offers struct {
	open    map[offerKey]*queue.FIFO[offered]
	count   int
	refused queue.FIFO[refusal] // refusals that the peer may not have received when it made its last offer
	writing []writing
	sent    [sentLog]sentMessage
	next    int
	lost    uint64 // number of the frame of the last message that is not in sent any more
}

// writing is a write to an offered receive that has not ended.
type writing struct {
	key   offerKey
	token uint64
	req   uint64 // request of the receiver
	told  bool   // a Taken for its receive was sent to the receiver
}

// refusal is an offer that was refused. Offers of the same envelope that the peer made before it
// had received the refusal are refused, too: the receive of the first precedes theirs.
type refusal struct {
	key offerKey
	seq uint64 // number of the frame with the refusal
}

// sentMessage is a message that was sent in a frame.
type sentMessage struct {
	key  offerKey
	seq  uint64
	used bool // an offer is accounted to it
}

// sentLog is the number of messages that are remembered, until their receiver is known to have had
// them when it made an offer. If a message is not remembered any more, an offer is refused, and the
// message is not affected.
const sentLog = 256

func (o *outgoing) offerKey() offerKey { return offerKey{o.src, o.dst, o.context, o.tag, o.coll} }

// onReady records an offer.
func (tx *sender) onReady(p *peer, h *wire.Header, payload []byte) error {
	var body wire.ReadyBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	e, err := tx.hostedBy(p, h)
	if err != nil {
		return err
	}
	if !p.Out().Was(body.Seq) {
		return fmt.Errorf("%v of rank %d: %w", h.Type, h.Src, p.Out().Never(body.Seq))
	}
	if e.gone || tx.job.Failed() || !p.Caps().Write {
		return nil
	}
	if p.offers == nil {
		p.offers = &offers{open: map[offerKey]*queue.FIFO[offered]{}, lost: p.Out().Last()}
	}
	x := p.offers
	x.known(body.Seq)
	if x.count+x.refused.Len() >= OfferWindow*(1+p.ranks) {
		return fmt.Errorf("%w: more than %d receives of its %d ranks are offered", link.ErrProtocol, OfferWindow*p.ranks, p.ranks)
	}
	key := offerKey{h.Dst, h.Src, h.Context, h.Tag, h.Flags&wire.FlagColl != 0}
	if body.Seq < x.lost || x.refuses(key) {
		x.refused.Push(refusal{key, tx.answerOffer(p, h).Seq})
		return nil
	}
	if x.account(key, body.Seq) {
		return nil // a message under way takes the receive
	}
	q := x.open[key]
	if q == nil {
		q = new(queue.FIFO[offered])
		x.open[key] = q
	}
	q.Push(offered{h.A, h.B, body})
	x.count++
	return nil
}

// known forgets the refusals that the peer had received with the frame seq. Offers come in the
// order in which they were made.
func (x *offers) known(seq uint64) {
	for x.refused.Len() > 0 && x.refused.First().seq <= seq {
		x.refused.Pop()
	}
}

func (x *offers) refuses(key offerKey) bool {
	return slices.ContainsFunc(x.refused.Rest(), func(r refusal) bool { return r.key == key })
}

// answerOffer answers that an offer is not used: the receive that the peer's frame h names is not
// written to. The caller may change the answer.
func (tx *sender) answerOffer(p *peer, h *wire.Header) *wire.Header {
	a := &tx.channel.Answer(p.Peer, wire.Withdrawn).Head
	a.Src, a.Dst, a.A, a.B = h.Dst, h.Src, h.A, 1
	return a
}

// account accounts an offer to the oldest message that was sent after frame seq and has none. It
// reports whether there is one.
func (x *offers) account(key offerKey, seq uint64) bool {
	for i := range x.sent {
		m := &x.sent[(x.next+i)%sentLog]
		if m.seq > seq && !m.used && m.key == key {
			m.used = true
			return true
		}
	}
	return false
}

// log remembers a message that was sent in the frame seq.
func (x *offers) log(key offerKey, seq uint64, used bool) {
	m := &x.sent[x.next]
	x.lost = max(x.lost, m.seq)
	*m = sentMessage{key, seq, used}
	x.next = (x.next + 1) % sentLog
}

// pop removes and returns the oldest offer for a message.
func (x *offers) pop(key offerKey) (o offered, ok bool) {
	q := x.open[key]
	if q == nil {
		return o, false
	}
	o = *q.First()
	x.count--
	if q.Pop(); q.Len() == 0 {
		delete(x.open, key)
	}
	return o, true
}

// sendOffered writes a message into a receive that is offered for it. It reports false if the
// message goes in a frame instead, which may match such a receive.
func (tx *sender) sendOffered(s *session, p *peer, o *outgoing) bool {
	x, key := p.offers, o.offerKey()
	to, ok := x.pop(key)
	if ok && to.capacity == o.total && o.payload.Len == o.total && (o.coll || !o.data.There()) && tx.startPut(s, p, o, &to, key) {
		return true
	}
	for i := range x.writing {
		if w := &x.writing[i]; w.key == key && !w.told {
			w.told = true
			f, _ := tx.channel.Emit(p.Peer, wire.Taken)
			f.Head.Src, f.Head.Dst, f.Head.A = o.src, o.dst, w.req
		}
	}
	x.log(key, p.Out().Last()+1, ok)
	return false
}

// startPut starts the write. It reports false if the link refuses it.
func (tx *sender) startPut(s *session, p *peer, o *outgoing, to *offered, key offerKey) bool {
	st, id := tx.sends.Alloc()
	*st = send{
		owner: o.owner, src: o.src, dst: o.dst, context: o.context, tag: o.tag, total: o.total,
		payload: o.payload, held: true, move: rendezvous.Source{Total: o.total, Mem: o.payload},
	}
	step := st.move.Put(to.request, &to.body)
	notify := to.request
	if !p.Caps().Notify {
		notify = 0
	}
	token := tx.remote(remoteOffered, s.ID(), id)
	op := tx.remotes.Get(token)
	op.other = to.request
	op.rank, op.collides = o.dst, notify == 0 && rendezvous.Collides(&to.body, tx.lastByte(o.payload)[0])
	if err := tx.ports.Write(p.ID(), token, step.Mem, step.Key, notify); err != nil {
		tx.cancelRemote(token)
		tx.sends.Release(id)
		return false
	}
	if r := tx.rx.recvs.Get(to.request); p.Self() && r != nil { // no frame carries the type to the receiver
		r.elem = o.elem
	}
	st.move.Writing()
	tx.ranks.Hold(s.ID())
	tx.stats.Put.Add(o.total)
	tx.stats.Offered++
	p.offers.writing = append(p.offers.writing, writing{key, token, to.request, false})
	tx.setState(s, o.owner, ranks.RequestSend, id)
	if o.owner.coll != 0 {
		tx.colls.Opened(o.owner.coll, MessageID{ID: id, Send: true})
	}
	return true
}

// putDone ends a write to an offered receive.
func (tx *sender) putDone(p *peer, token uint64, op *remoteOp, err error) {
	for i, w := range p.offers.writing {
		if w.token == token {
			last := len(p.offers.writing) - 1
			p.offers.writing[i] = p.offers.writing[last]
			p.offers.writing = p.offers.writing[:last]
			break
		}
	}
	st := tx.sends.Get(op.id)
	step := rendezvous.PutDone(op.collides, err)
	if step.Do == rendezvous.Notify && !step.Failed {
		tx.stats.Collisions++
	}
	tx.sendWritten(p, op, step)
	switch {
	case st == nil:
	case err == nil:
		tx.endSend(op.id, st, shm.StatusOK, true)
	default:
		st.move.Ended()
		st.move.WriteFailed(0)
	}
}

// onWithdraw takes an offer back, and answers whether it is used already.
func (tx *sender) onWithdraw(p *peer, h *wire.Header) error {
	if _, err := tx.hostedBy(p, h); err != nil {
		return err
	}
	a := tx.answerOffer(p, h)
	x := p.offers
	if x == nil {
		return nil
	}
	for i := range x.writing {
		if x.writing[i].req == h.A {
			a.B = 0
			return nil
		}
	}
	x.drop(h.A)
	return nil
}

// RankLeft forgets the offers of a rank that has left, and to it.
func (tx *sender) RankLeft(rank uint32) {
	tx.peerOf(rank).offers.dropRank(rank)
	if tx.endpoints[rank] == nil {
		return
	}
	for i := range tx.peers {
		tx.peers[i].offers.dropRank(rank)
	}
}

func (x *offers) dropRank(rank uint32) {
	if x == nil {
		return
	}
	for key, q := range x.open { // any order: nothing is sent
		if key.src == rank || key.dst == rank {
			x.count -= q.Len()
			delete(x.open, key)
		}
	}
}

// drop forgets the offer of a request.
func (x *offers) drop(request uint64) {
	for key, q := range x.open { // any order: one of them has the request
		for i, o := range q.Rest() {
			if o.request == request {
				q.Remove(i)
				x.count--
				if q.Len() == 0 {
					delete(x.open, key)
				}
				return
			}
		}
	}
}
