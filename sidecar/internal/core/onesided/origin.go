package onesided

import (
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// AccFragment is the largest payload of an Acc frame: a multiple of the size of each type,
// and no larger than a piece of the pool that it passes through.
const AccFragment = 64 << 10

// origin is a one-sided operation of a hosted rank.
type origin struct {
	session  ranks.SessionID
	req      uint32
	op       shm.Op
	rank     uint32 // rank that has started the operation
	target   uint32 // AnySource: a flush of every peer
	context  uint32
	tag      uint64 // tag of the descriptor, whose meaning depends on op
	offset   uint64 // offset in the target's window
	word     uint64 // type and operation of a fetch; 1 for an exclusive lock
	operand  [shm.InlineMax]byte
	length   uint8 // bytes of operand in use
	buf      link.Ref
	total    uint64
	sent     uint64      // bytes of a Put or Acc that were emitted
	received uint64      // bytes of a Get that have arrived
	emitted  bool        // all the operation's frames are emitted
	waits    int         // answers or acknowledgements outstanding
	asked    []link.Peer // peers that have not answered a flush of all peers
	status   shm.Status
	held     bool // the session's memory is held
	framed   bool // a remote operation has failed: the rest is sent in frames
	orphan   bool // a get whose session has ended, and whose answer is not complete
	counted  bool // the operation counts against a bound of requests.go
}

// Submit starts an access, a flush or a lock (PROTOCOL.md §5.6).
func (r *Room) Submit(s ranks.SessionID, d *shm.Descriptor) error {
	all := d.Op == shm.OpFlush && d.Peer == shm.AnySource
	if !all && int(d.Peer) >= len(r.cfg.PodOf) {
		return ranks.NoSuchRank(d.Peer, r.cfg.PodOf)
	}
	b := r.members[s]
	o, id := r.origins.Alloc()
	err := describeOrigin(b.session, o, d)
	if err == nil {
		err = b.session.Claim(d.Req, ranks.RequestOrigin, id)
	}
	if err != nil {
		r.origins.Release(id)
		return err
	}
	if o.buf.Len > 0 {
		o.held = true
		r.sessions.Hold(s)
	}
	kind, waits := awaitedKind(d.Op)
	switch {
	case waits:
		r.await(o, id, kind)
	case !r.claimWait(b, o):
		r.End(id, shm.StatusNoMemory)
	case all:
		r.flushAll(o, id)
	default:
		p := r.peerOf(d.Peer)
		if is := r.channel.PeerState(p.id); is&Ended != 0 {
			r.End(id, r.job.Lost(p.id))
		} else {
			r.access(p, o, id, is)
		}
	}
	return nil
}

// describeOrigin fills an operation from its descriptor.
func describeOrigin(s *ranks.Session, o *origin, d *shm.Descriptor) error {
	o.session, o.req, o.op, o.rank, o.target = s.ID(), d.Req, d.Op, s.Rank(), d.Peer
	o.context, o.tag = d.Context, d.Tag
	switch d.Op {
	case shm.OpPut, shm.OpGet, shm.OpAcc:
		ref, err := s.Memory(d.Class, d.Addr(), d.Len())
		if err != nil {
			return err
		}
		o.buf, o.total, o.offset = ref, d.Len(), d.Aux()
	case shm.OpFetch, shm.OpCas:
		if d.Class != shm.ClassInline || d.InlineLen > shm.InlineMax {
			return fmt.Errorf("operand of class %d with %d bytes, want class %d with at most %d", d.Class, d.InlineLen, shm.ClassInline, shm.InlineMax)
		}
		o.length = uint8(copy(o.operand[:], d.Inline()))
		o.offset, o.word = d.Tag, uint64(d.Status)
		if d.Op == shm.OpCas {
			o.word &^= 0xff
		}
	case shm.OpLock:
		if d.Flags&shm.FlagExclusive != 0 {
			o.word = 1
		}
	}
	return nil
}

// Released handles the acknowledgement of a frame whose payload was memory.
func (r *Room) Released(p link.Peer, what Release, id uint64) {
	switch what {
	case ReleaseAccess:
		if o := r.origins.Get(id); o != nil {
			r.originStep(id, o)
		}
	case ReleaseGet:
		r.peer(p).served--
	}
}

// originStep counts an answer or acknowledgement; the last one ends the operation.
func (r *Room) originStep(id uint64, o *origin) {
	if o.waits--; o.waits == 0 && o.emitted {
		r.End(id, o.status)
	}
}

// onAnswer handles the answer to a fetch, lock, unlock or flush.
func (r *Room) onAnswer(p *peer, h *wire.Header, payload []byte) error {
	o := r.origins.Get(h.A)
	if o == nil {
		return r.origins.Ended(h.A, "an answer to")
	}
	if o.target != shm.AnySource && r.podOf(o.target) != p.id || o.waits == 0 || !answeredBy(o.op, h.Type) {
		return fmt.Errorf("%w: answer to a request of another sidecar", link.ErrProtocol)
	}
	switch h.Type {
	case wire.Fetched:
		if len(payload) > shm.InlineMax {
			return fmt.Errorf("%w: fetched value that was not requested", link.ErrProtocol)
		}
		r.endFetch(h.A, o, payload)
		return nil
	case wire.Flushed:
		if o.target == shm.AnySource {
			if !r.flushAnswered(h.A, o, p.id, shm.Status(h.B)) {
				return fmt.Errorf("%w: flush answered twice", link.ErrProtocol)
			}
			return nil
		}
		if o.status == shm.StatusOK {
			o.status = shm.Status(h.B)
		}
		if o.op == shm.OpFlush {
			r.flushed(p, o)
		}
	}
	r.originStep(h.A, o)
	return nil
}

// answeredBy reports whether an operation can have that answer. Flushed answers each kind
// that was not possible.
func answeredBy(op shm.Op, t wire.Type) bool {
	switch op {
	case shm.OpFetch, shm.OpCas:
		return t != wire.Locked
	case shm.OpLock:
		return t != wire.Fetched
	case shm.OpGet, shm.OpUnlock, shm.OpFlush:
		return t == wire.Flushed
	}
	return false
}

// flushAnswered records the answer of one peer to a flush of all peers; false: the peer has
// answered before.
func (r *Room) flushAnswered(id uint64, o *origin, p link.Peer, status shm.Status) bool {
	at := slices.Index(o.asked, p)
	if at < 0 {
		return false
	}
	o.asked = slices.Delete(o.asked, at, at+1)
	if o.status == shm.StatusOK {
		o.status = status
	}
	r.originStep(id, o)
	return true
}

// endFetch completes a fetch with the previous value.
func (r *Room) endFetch(id uint64, o *origin, value []byte) {
	d := shm.Descriptor{Op: shm.OpDone, Req: o.req, Peer: o.target}
	d.SetInline(value)
	s := o.session
	r.releaseOrigin(id, o)
	r.sessions.Complete(s, &d)
}

// End completes a one-sided operation. A get that ends before its answer is complete keeps
// its record, without memory, as an orphan: the peer keeps its record as long, and both
// sides count it against GetWindow.
func (r *Room) End(id uint64, status shm.Status) {
	o := r.origins.Get(id)
	if o == nil {
		return
	}
	answering := o.op == shm.OpGet && o.emitted && o.waits > 0 && r.mayAnswer(r.podOf(o.target))
	if o.orphan {
		if !answering {
			r.endOrigin(id, o)
		}
		return
	}
	d := shm.Descriptor{Op: shm.OpDone, Req: o.req, Peer: o.target, Status: status}
	s, held := o.session, o.held
	if answering {
		o.orphan, o.held = true, false
		r.sessions.Outlive(s)
	} else {
		r.endOrigin(id, o)
	}
	r.sessions.Complete(s, &d)
	if held {
		r.sessions.Unhold(s)
	}
}

// mayAnswer reports whether p can still answer: it is in this generation, and in a failed job
// it is connected, because no sidecar connects again then.
func (r *Room) mayAnswer(p link.Peer) bool {
	is := r.channel.PeerState(p)
	return is&Ended == 0 && (is&Idle == 0 || !r.job.Failed())
}

// targetPeer returns the sidecar of an operation's target; allPeers for a flush of all.
func (r *Room) targetPeer(o *origin) link.Peer {
	if o.target == shm.AnySource {
		return allPeers
	}
	return r.podOf(o.target)
}

const allPeers link.Peer = -1

// endOrigin releases an operation and its claims.
func (r *Room) endOrigin(id uint64, o *origin) {
	if o.op == shm.OpGet && o.emitted {
		r.getEnded(r.peerOf(o.target), o.rank)
	}
	r.unawait(o, id)
	r.releaseOrigin(id, o)
}

// placeAnswer returns the destination of a fragment that answers a Get.
func (r *Room) placeAnswer(p *peer, h *wire.Header) (Destination, error) {
	o := r.origins.Get(h.A)
	if o == nil {
		return Destination{Where: Discard}, r.origins.Ended(h.A, "an answer to")
	}
	n := uint64(h.Length)
	if o.op != shm.OpGet || r.podOf(o.target) != p.id || h.B != o.received || n == 0 || n > o.total-o.received {
		return Destination{}, fmt.Errorf("%w: answer of %d bytes at %d, which no get has requested", link.ErrProtocol, n, h.B)
	}
	if o.orphan {
		return Destination{Where: Discard, Of: Inbound{InboundGot, h.A}}, nil
	}
	return Destination{Where: Memory, Memory: o.buf.Slice(h.B, n), Session: o.session, Of: Inbound{InboundGot, h.A}}, nil
}

// answerPlaced counts a fragment of the answer to a get.
func (r *Room) answerPlaced(id uint64, h *wire.Header) {
	o := r.origins.Get(id)
	if o == nil {
		return
	}
	if o.received += uint64(h.Length); o.received == o.total {
		r.originStep(id, o)
	}
}
