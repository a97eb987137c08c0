package core

import (
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// accFragment is the largest payload of an Acc frame: a multiple of every
// element's size, and small enough for the pool.
const accFragment = eagerLimit

// origin is a one-sided operation at the side that started it.
type origin struct {
	owner   owner
	op      shm.Op
	rank    uint32 // that started it
	target  uint32 // AnySource: a flush of every peer
	context uint32
	tag     uint64 // of the descriptor; its meaning is the operation's
	offset  uint64 // in the target's window
	word    uint64 // type and operation, or exclusive
	operand [shm.InlineMax]byte
	length  uint8 // of operand
	buf     link.Ref
	total   uint64
	sent    uint64      // bytes of a Put or Acc in frames
	got     uint64      // bytes of a Get that have come
	emitted bool        // all its frames are on their way
	waits   int         // answers or acknowledgements outstanding
	asked   []link.Peer // of a flush of every peer, those that have not answered
	status  shm.Status
	session bool // the session's memory is held
	framed  bool // not remotely, though the window may be reached so
	orphan  bool // a get whose session has ended, and that is being answered
	asks    bool // it is counted among those that its peer has not answered (asks.go)
}

// submitOneSided starts an access, a flush or a lock (P§5.6).
func (c *Core) submitOneSided(s *session, d *shm.Descriptor) error {
	all := d.Op == shm.OpFlush && d.Peer == shm.AnySource
	if !all {
		if err := c.checkRank(d.Peer); err != nil {
			return err
		}
	}
	o, id := c.origins.Alloc()
	err := c.describeOrigin(s, o, d)
	if err == nil {
		err = s.Claim(d.Req, ranks.RequestOrigin, id)
	}
	if err != nil {
		c.origins.Release(id)
		return err
	}
	if o.buf.Len > 0 {
		o.session = true
		c.ranks.Hold(s.ID())
	}
	kind, waits := awaited(d.Op)
	switch {
	case waits:
		c.await(o, id, kind)
	case !c.mayWait(s, o):
		c.endOrigin(id, shm.StatusNoMemory)
	case all:
		c.flushAll(o, id)
	case c.over(c.peerOf(d.Peer)):
		c.endOrigin(id, c.lost(c.peerOf(d.Peer)))
	default:
		c.access(c.peerOf(d.Peer), o, id)
	}
	return nil
}

func (c *Core) describeOrigin(s *session, o *origin, d *shm.Descriptor) error {
	o.owner, o.op, o.rank, o.target = owner{session: s.ID(), req: d.Req}, d.Op, s.endpoint.rank, d.Peer
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
			return fmt.Errorf("operand of class %d", d.Class)
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

// firstRank is some rank of p's pod, for frames that mean all of them.
func (c *Core) firstRank(p *peer) uint32 {
	return p.first
}

// originReached is told when a fragment of an access is acknowledged.
func (c *Core) originReached(id uint64) {
	if o := c.origins.Get(id); o != nil {
		c.originStep(id, o)
	}
}

func (c *Core) originStep(id uint64, o *origin) {
	if o.waits--; o.waits == 0 && o.emitted {
		c.endOrigin(id, o.status)
	}
}

// onAnswer takes the answer to a fetch, lock, unlock or flush.
func (c *Core) onAnswer(p *peer, h *wire.Header, payload []byte) error {
	o := c.origins.Get(h.A)
	if o == nil {
		return c.origins.Ended(h.A, "an answer to")
	}
	if o.target != shm.AnySource && c.peerOf(o.target) != p || o.waits == 0 || !answeredBy(o.op, h.Type) {
		return fmt.Errorf("%w: answer to a request of another sidecar", link.ErrProtocol)
	}
	switch h.Type {
	case wire.Fetched:
		if len(payload) > shm.InlineMax {
			return fmt.Errorf("%w: fetched value nobody asked for", link.ErrProtocol)
		}
		c.endFetch(h.A, o, payload)
		return nil
	case wire.Flushed:
		if o.target == shm.AnySource {
			if !c.flushAnswered(h.A, o, p, shm.Status(h.B)) {
				return fmt.Errorf("%w: flush answered twice", link.ErrProtocol)
			}
			return nil
		}
		if o.status == shm.StatusOK {
			o.status = shm.Status(h.B)
		}
		if o.op == shm.OpFlush {
			c.flushed(p, o)
		}
	}
	c.originStep(h.A, o)
	return nil
}

// answeredBy reports that an operation may have that answer: Flushed says of each that
// it was not possible.
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

// flushAnswered notes the answer of one peer to a flush of all; false: it had
// answered before.
func (c *Core) flushAnswered(id uint64, o *origin, p *peer, status shm.Status) bool {
	at := slices.Index(o.asked, p.id)
	if at < 0 {
		return false
	}
	o.asked = slices.Delete(o.asked, at, at+1)
	if o.status == shm.StatusOK {
		o.status = status
	}
	c.originStep(id, o)
	return true
}

func (c *Core) endFetch(id uint64, o *origin, value []byte) {
	d := shm.Descriptor{Op: shm.OpDone, Req: o.owner.req, Peer: o.target}
	d.SetInline(value)
	s := o.owner.session
	c.releaseOrigin(id, o)
	c.ranks.Complete(s, &d)
}

// endOrigin completes a one-sided operation. A get that ends while it is being
// answered keeps its record, without memory, until the answer is whole: the
// peer has one, too, until then.
func (c *Core) endOrigin(id uint64, status shm.Status) {
	o := c.origins.Get(id)
	if o == nil {
		return
	}
	p := c.originPeer(o)
	answering := p != nil && o.op == shm.OpGet && o.emitted && o.waits > 0 && c.answers(p)
	if o.orphan {
		if !answering {
			c.forgetOrigin(id, o, p)
		}
		return
	}
	d := shm.Descriptor{Op: shm.OpDone, Req: o.owner.req, Peer: o.target, Status: status}
	s, held := o.owner.session, o.session
	if answering {
		o.orphan, o.session = true, false
	} else {
		c.forgetOrigin(id, o, p)
	}
	c.ranks.Complete(s, &d)
	if held {
		c.ranks.Unhold(s)
	}
}

// answers reports that p may still answer: it is not dead, and in a failed job its
// connection has not ended, since nobody makes another one.
func (c *Core) answers(p *peer) bool {
	return !c.over(p) && (c.fail == nil || p.state != peerIdle)
}

// originPeer is where an operation's target is; nil: everywhere.
func (c *Core) originPeer(o *origin) *peer {
	if o.target == shm.AnySource {
		return nil
	}
	return c.peerOf(o.target)
}

func (c *Core) forgetOrigin(id uint64, o *origin, p *peer) {
	if o.op == shm.OpGet && o.emitted {
		c.getEnded(p, o.rank)
	}
	c.unawait(o, id)
	c.releaseOrigin(id, o)
}

// placeGot finds the place of a fragment that answers a Get.
func (c *Core) placeGot(p *peer, h *wire.Header) error {
	o := c.origins.Get(h.A)
	if o == nil {
		c.discard(p, h)
		return c.origins.Ended(h.A, "an answer to")
	}
	n := uint64(h.Length)
	if o.op != shm.OpGet || c.peerOf(o.target) != p || h.B != o.got || n == 0 || n > o.total-o.got {
		return fmt.Errorf("%w: %d bytes at %d that no get asked for", link.ErrProtocol, n, h.B)
	}
	if o.orphan {
		c.target(p, h, placeGot, h.A, link.Ref{Region: RegionDiscard, Len: n}, nil)
		return nil
	}
	c.target(p, h, placeGot, h.A, o.buf.Slice(h.B, n), c.sessions[o.owner.session])
	return nil
}

func (c *Core) gotPlaced(id uint64, in *inbound) {
	o := c.origins.Get(id)
	if o == nil {
		return
	}
	if o.got += uint64(in.head.Length); o.got == o.total {
		c.originStep(id, o)
	}
}
