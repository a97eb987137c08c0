package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// owner is the owner of a message: a request of an application, or a collective.
type owner struct {
	session ranks.SessionID
	req     uint32
	coll    uint64 // collective state; 0: the application's
	silent  bool   // counted, not completed
}

// send is a message that its sender must remember: a rendezvous, or an eager message whose match is
// reported.
type send struct {
	owner   owner
	src     uint32
	dst     uint32
	context uint32
	tag     uint64
	total   uint64
	payload link.Ref
	inline  [shm.InlineMax]byte
	held    bool // payload's memory is held
	orphan  bool // the send's session has left in good order; the engine has its bytes
	silent  int  // index in its session's silent, of a silent send

	sync    bool   // eager, waiting for Matched
	reply   uint64 // the receive that takes the reply to the send; 0: it wants none
	retract bool   // a cancel is under way

	move    rendezvous.Source
	flowing bool // the send is among its peer's transfers
	staged  bool
	lent    *lent // memory that the send's application has lent for it
	wanted  bool  // the send's application was asked for chunks
	chunks  chunkQueue
}

// outgoing describes a send before the protocol is chosen.
type outgoing struct {
	owner   owner
	src     uint32
	dst     uint32
	context uint32
	tag     uint64
	total   uint64
	payload link.Ref
	inline  []byte
	class   shm.Class
	data    ranks.Immediate
	about   uint32 // part of the identity of a collective that only an announcement carries
	sync    bool
	reply   uint64 // the receive that takes the reply; 0: none is wanted
	elem    uint8  // type of the elements; 0: not given
	coll    bool
	gather  bool // the link gathers the payload from where it is
	lent    lentRange
}

func (tx *sender) submitSend(s *session, d *shm.Descriptor) error {
	o := outgoing{
		owner: owner{session: s.ID(), req: d.Req, silent: d.Flags&shm.FlagSilent != 0},
		src:   s.endpoint.rank, dst: d.Peer, context: d.Context, tag: d.Tag,
		class: d.Class, sync: d.Flags&shm.FlagSync != 0, data: ranks.DataOf(d),
	}
	if err := tx.job.Check(d.Peer); err != nil {
		return err
	}
	if d.Flags&shm.FlagReply != 0 {
		if o.sync || o.data.There() {
			return fmt.Errorf("a message that wants a reply is not synchronous and has no data")
		}
		o.reply = tx.rx.replyTo(s, uint32(d.Status), d.Peer)
	}
	if d.Flags&shm.FlagTyped != 0 {
		if d.Flags&(shm.FlagData|shm.FlagReply) != 0 || d.Status > wire.ElemMax {
			return fmt.Errorf("a message with a type has neither data nor a reply, and the type is at most %d: flags %#x, type %d", wire.ElemMax, d.Flags, d.Status)
		}
		o.elem = uint8(d.Status)
	}
	switch d.Class {
	case shm.ClassInline:
		if d.InlineLen > shm.InlineMax {
			return fmt.Errorf("inline payload of %d bytes", d.InlineLen)
		}
		o.inline = d.Inline()
		o.total = uint64(len(o.inline))
	case shm.ClassStaged:
		o.total = d.Len()
	case shm.ClassExposed:
		lent, err := s.lentMemory(d.Addr(), d.Len())
		if err != nil {
			return err
		}
		o.class, o.lent, o.total = shm.ClassStaged, lent, d.Len()
	default:
		ref, err := s.Memory(d.Class, d.Addr(), d.Len())
		if err != nil {
			return err
		}
		o.payload, o.total = ref, d.Len()
	}
	if o.owner.silent {
		if d.Class != shm.ClassInline || o.sync {
			return fmt.Errorf("only an inline send that is not synchronous may be silent")
		}
		if len(s.silent) >= SilentLimit {
			return fmt.Errorf("more than %d silent sends are open", SilentLimit)
		}
		if err := s.Affords(memory.RequestCost); err != nil {
			return err
		}
	} else if err := s.Claim(d.Req, ranks.RequestSend, 0); err != nil {
		return err
	}
	tx.startSend(s, &o)
	return nil
}

// startSend chooses the protocol: eager if the message is small and the receiver has granted credit
// for it, else rendezvous.
func (tx *sender) startSend(s *session, o *outgoing) {
	p := tx.peerOf(o.dst)
	switch {
	case s.Left(): // of a collective that has not ended yet: no message of a rank follows its goodbye
		tx.sendDone(s, o.owner, shm.StatusAborted)
		return
	case p.State() == channel.Dead:
		status := tx.job.Lost(p.ID())
		if status == shm.StatusPeerLeft {
			s.noteDeparted(tx.channel.Now(), o.dst)
		}
		tx.sendDone(s, o.owner, status)
		return
	case tx.job.HasLeft(o.dst):
		s.noteDeparted(tx.channel.Now(), o.dst)
		tx.sendDone(s, o.owner, tx.job.Refusal())
		return
	}
	tx.countSent(o.src, o.dst, o.total)
	if p.offers != nil && tx.sendOffered(s, p, o) {
		return
	}
	if o.class != shm.ClassStaged && !(o.sync && o.data.There()) && o.total <= tx.eagerMax(p) && tx.channel.TakeCredit(p.Peer, charge(o.total)) {
		tx.sendEager(s, p, o)
		return
	}
	tx.sendRendezvous(s, p, o)
}

func (x *common) eagerMax(p *peer) uint64 {
	if p.Caps().EagerMax != 0 {
		return min(x.cfg.EagerBytes, p.Caps().EagerMax)
	}
	return x.cfg.EagerBytes
}

// sendDone ends a send for its owner.
func (tx *sender) sendDone(s *session, o owner, status shm.Status) {
	switch {
	case o.coll != 0:
		tx.colls.Done(o.coll, status)
	case o.silent:
		tx.ports.Retire(o.session, 1)
	default:
		tx.ranks.Finish(o.session, o.req, status)
	}
}

func (o *outgoing) header(f *wire.Header) {
	f.Context, f.Src, f.Dst, f.Tag, f.Elem = o.context, o.src, o.dst, o.tag, o.elem
	if o.coll {
		f.Flags |= wire.FlagColl
	}
	if o.data.There() {
		f.Flags |= wire.FlagData
	}
	if o.reply != 0 {
		f.Flags |= wire.FlagReply
	}
}

// sendEager emits the message with its payload (P§5.1). The send ends when nothing refers to the
// application's memory any more: at once for inline and copied payloads, for others when the link
// has confirmed or the peer has acknowledged the frame. A send of an application to a rank of this
// sidecar ends when it is delivered, in the same turn: the completions that its arrival causes are
// published before its own (L§5).
func (tx *sender) sendEager(s *session, p *peer, o *outgoing) {
	f, a := tx.channel.Emit(p.Peer, wire.Eager)
	tx.channel.Queued(o.src)
	o.header(&f.Head)
	f.Head.A, f.Head.B, f.Head.Length = o.total, o.data.Bits()|o.reply, uint32(o.total)
	tx.stats.Eager.Add(o.total)
	follows := p.Self() && o.owner.coll == 0 && !o.owner.silent
	done := true
	switch {
	case o.total == 0:
	case o.inline != nil:
		copy(f.Inline[:], o.inline)
	case o.total <= uint64(len(f.Inline)) && o.class == shm.ClassArena:
		copy(f.Inline[:], tx.ports.Bytes(o.payload))
	case o.class == shm.ClassArena && o.total <= tx.cfg.CopyBytes && !follows && p.met() && !tx.gathers(p, o) && tx.copyOut(f, a, o.payload):
	default:
		f.Payload = o.payload
		f.Gather = o.gather
		if !p.tells(f) {
			f.Head.Flags |= wire.FlagAckNow
		}
		*a = after{Session: s.ID(), Hold: true}
		tx.ranks.Hold(s.ID())
		done = false
	}
	if o.class == shm.ClassSlab && o.total <= tx.cfg.CopyBytes {
		f.Head.Flags &^= wire.FlagAckNow // a slot may stay in use for longer: the application has its buffer back
	}
	p.Out().Charge(f.Payload.Len)
	if o.sync {
		// Matched follows the acknowledgement, so that it implies that the payload is not
		// needed any more.
		st, id := tx.sends.Alloc()
		*st = send{owner: o.owner, src: o.src, dst: o.dst, context: o.context, tag: o.tag, total: o.total, sync: true}
		f.Head.Flags |= wire.FlagSync
		f.Head.B = id
		tx.setState(s, o.owner, ranks.RequestSend, id)
		return
	}
	if done && !follows {
		tx.sendDone(s, o.owner, shm.StatusOK)
		return
	}
	tx.afterSend(a, o.owner)
}

// tells reports whether the link to p will confirm f. If a frame is sent by a ring, the link
// knows only that it was written.
func (p *peer) tells(f *link.Frame) bool {
	return p.Caps().Delivers && (f.Gather || f.Head.Length >= link.DeliveredBytes) && !p.ByRing(f)
}

// gathers reports whether the link gathers an eager payload from the application's memory.
func (tx *sender) gathers(p *peer, o *outgoing) bool {
	o.gather = tx.cfg.Gatherer != nil && !p.Self() && tx.cfg.Gatherer.Gathers(p.ID(), o.payload)
	return o.gather
}

// afterSend makes the acknowledgement of a's frame end the send.
func (tx *sender) afterSend(a *after, o owner) {
	a.Session = o.session
	if o.coll != 0 {
		a.Kind, a.ID = afterColl, o.coll
	} else {
		a.Kind, a.ID = afterComplete, uint64(o.req)
	}
}

// met reports whether p was connected once. The first frames of p show which of its ranks have
// left. Until they have arrived, an eager send ends with its acknowledgement, and not earlier
// (taken).
func (p *peer) met() bool { return p.Known() || p.Self() }

// copyOut copies the payload into memory of the engine, so that the application may change its buffer
// at once.
func (tx *sender) copyOut(f *link.Frame, a *after, payload link.Ref) bool {
	ref, ok := tx.copies.get(payload.Len)
	if !ok {
		return false
	}
	copy(tx.ports.Bytes(ref), tx.ports.Bytes(payload))
	f.Payload = ref
	a.Kind = afterCopy
	return true
}

// setState links the application's request number to its state.
func (x *common) setState(s *session, o owner, kind ranks.RequestKind, id uint64) {
	if o.coll == 0 && !o.silent {
		s.SetState(o.req, kind, id)
	}
}

// onMatched ends a synchronous eager send (P§5.1).
func (tx *sender) onMatched(p *peer, h *wire.Header) error {
	if h.Flags&wire.FlagReply != 0 {
		return tx.rx.onNoReply(p, h)
	}
	st := tx.sends.Get(h.A)
	if st == nil {
		return tx.sends.Ended(h.A, "a match of")
	}
	if !st.sync || tx.peerOf(st.dst) != p {
		return fmt.Errorf("%w: matched for an unknown send", link.ErrProtocol)
	}
	tx.endSend(h.A, st, shm.Status(h.B), true)
	return nil
}

// endSend releases the resources of a send and completes it. inOrder means that the receiver
// has sent its last frame about it, with whatever result.
func (tx *sender) endSend(id uint64, st *send, status shm.Status, inOrder bool) {
	if key, ok := st.move.Key(); ok {
		tx.endKey(tx.peerOf(st.dst).ID(), key, inOrder)
	}
	o, held, lent := st.owner, st.held, st.lent
	if st.reply != 0 && status == shm.StatusPeerLeft {
		tx.rx.noReply(st.reply, status)
	}
	if st.orphan {
		tx.orphans--
		tx.ranks.EndOutlived()
		tx.sends.Release(id)
		return
	}
	if st.staged {
		tx.returnChunks(st)
	}
	if o.silent {
		tx.dropSilent(tx.sessions[o.session], st)
	}
	if status == shm.StatusPeerLeft {
		tx.sessions[o.session].noteDeparted(tx.channel.Now(), st.dst)
	}
	tx.sends.Release(id)
	tx.sendDone(tx.sessions[o.session], o, status)
	if lent != nil {
		tx.endLent(o.session, lent)
	}
	if held {
		tx.ranks.Unhold(o.session)
	}
}

// endKey ends the registration of a rendezvous. The link may keep the registration if the protocol
// has ended in order.
func (x *common) endKey(peer link.Peer, key link.Key, inOrder bool) {
	if inOrder {
		x.ports.Release(peer, key)
	} else {
		x.ports.Deregister(peer, key)
	}
}

// SilentLimit bounds the silent sends of an application that their receivers
// have not taken over (L§4.3).
const SilentLimit = shm.MaxRequests

// keepSilent records a silent send that has to wait: it has no request.
func (s *session) keepSilent(id uint64, st *send) {
	s.Keep(memory.RequestCost) // submitSend has checked that
	st.silent = len(s.silent)
	s.silent = append(s.silent, id)
}

// dropSilent removes such a send.
func (tx *sender) dropSilent(s *session, st *send) {
	last := s.silent[len(s.silent)-1]
	s.silent[st.silent] = last
	tx.sends.Get(last).silent = st.silent
	s.silent = s.silent[:len(s.silent)-1]
	s.Refund(memory.RequestCost)
}
