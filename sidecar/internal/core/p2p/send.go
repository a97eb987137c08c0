package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/mover"
)

// owner is whose request it is: an application's, by number, or a collective's.
type owner struct {
	session ranks.SessionID
	req     uint32
	coll    uint64 // collective state; 0: the application's
	silent  bool   // counted, not completed
}

// send is a message that the sending side must remember: a rendezvous, or an
// eager one whose matching the sender wants to know of.
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
	orphan  bool // its session has said goodbye; its bytes are here
	silent  int  // place in its session's silent, of a silent one

	sync    bool   // eager, waiting for Matched
	reply   uint64 // the receive that takes the reply to it; 0: it wants none
	retract bool   // a cancel is under way

	move    mover.Source
	flowing bool // is in its peer's streams
	staged  bool
	lent    *lent // memory that its application has lent for it
	wanted  bool  // its application knows that the receiver waits
	chunks  chunkQueue
}

// message describes a send before the protocol is chosen.
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
	about   uint32 // of a collective, what its announcement tells of it beside the data
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

// startSend chooses the protocol: eager while the message is small and the
// receiver has granted room for it, else rendezvous.
func (tx *sender) startSend(s *session, o *outgoing) {
	p := tx.peerOf(o.dst)
	switch {
	case p.State() == channel.Dead:
		status := tx.job.Lost(p.ID())
		if status == shm.StatusPeerLeft {
			s.desert(tx.channel.Now(), o.dst)
		}
		tx.sendDone(s, o.owner, status)
		return
	case tx.job.HasLeft(o.dst):
		s.desert(tx.channel.Now(), o.dst)
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

// sendEager emits the message with its payload (P§5.1). The send is over as
// soon as nothing refers to the application's memory: at once for inline and
// copied payloads, for others when the link has told that they have come, or the
// peer has acknowledged them. An application's to a rank of this sidecar is over when
// it is delivered, which is in the same turn: what its arrival has brought about is told
// before its end (L§5).
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
		f.Head.Flags &^= wire.FlagAckNow // slots can wait; the application has its buffer back
	}
	p.Out().Charge(f.Payload.Len)
	if o.sync {
		// Matched comes after the acknowledgement: it implies that the
		// payload has left.
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

// tells reports that the link to p will tell by itself that f has come: of what goes by
// a ring it knows only that it was written.
func (p *peer) tells(f *link.Frame) bool {
	return p.Caps().Delivers && (f.Gather || f.Head.Length >= link.ToldBytes) && !p.ByRing(f)
}

// gathers asks whether the link gathers an eager payload from the application's memory.
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

// met reports that p was connected once. The first that it says then is who has left
// there: until that was heard an eager send ends with its acknowledgement, and not
// before (taken). Its engine alone sees to that, and not its receiver.
func (p *peer) met() bool { return p.Known() || p.Self() }

// copyOut copies the payload into memory of the engine's own, so that the
// application may change its buffer at once.
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

// setState points the application's request number at its state.
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

// endSend releases what a remembered send holds and completes it. inOrder says that
// its receiver has said its last word about it, whatever has come of it.
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
		tx.sessions[o.session].desert(tx.channel.Now(), st.dst)
	}
	tx.sends.Release(id)
	tx.sendDone(tx.sessions[o.session], o, status)
	if lent != nil {
		tx.done(o.session, lent)
	}
	if held {
		tx.ranks.Unhold(o.session)
	}
}

// endKey ends the registration of a rendezvous, which its link may keep where the
// protocol has come to its end.
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

// keepSilent notes a silent send that has to wait: no request stands for it.
func (s *session) keepSilent(id uint64, st *send) {
	s.Keep(memory.RequestCost) // submitSend has judged it
	st.silent = len(s.silent)
	s.silent = append(s.silent, id)
}

// dropSilent forgets such a send.
func (tx *sender) dropSilent(s *session, st *send) {
	last := s.silent[len(s.silent)-1]
	s.silent[st.silent] = last
	tx.sends.Get(last).silent = st.silent
	s.silent = s.silent[:len(s.silent)-1]
	s.Refund(memory.RequestCost)
}
