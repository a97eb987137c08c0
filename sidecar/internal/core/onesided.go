package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// accFragment is the largest payload of an Acc frame: a multiple of every
// element's size, and small enough for the pool.
const accFragment = eagerLimit

// origin is a one-sided operation at the side that started it.
type origin struct {
	owner   owner
	op      shm.Op
	target  uint32
	buf     link.Ref
	total   uint64
	got     uint64
	waits   int // answers or acknowledgements outstanding
	status  shm.Status
	session bool // the session's memory is held
}

// submitOneSided starts an access, a flush or a lock (P§5.6).
func (c *Core) submitOneSided(s *session, d *shm.Descriptor) error {
	all := d.Op == shm.OpFlush && d.Peer == shm.AnySource
	if !all {
		if err := c.checkRank(d.Peer); err != nil {
			return err
		}
	}
	o, id := c.origins.alloc()
	o.owner, o.op, o.target = owner{session: s.id, req: d.Req}, d.Op, d.Peer
	err := c.describeOrigin(s, o, d)
	if err == nil {
		err = s.take(d.Req, requestOrigin, id)
	}
	if err != nil {
		c.origins.release(id)
		return err
	}
	if o.buf.Len > 0 {
		o.session = true
		c.hold(s.id)
	}
	if !all && c.peerOf(d.Peer).state == peerDead {
		c.endOrigin(id, shm.StatusPeerFailed)
		return nil
	}
	c.startOrigin(s, o, id, d)
	return nil
}

func (c *Core) describeOrigin(s *session, o *origin, d *shm.Descriptor) error {
	switch d.Op {
	case shm.OpPut, shm.OpGet, shm.OpAcc:
		ref, err := s.memory(d.Class, d.Addr(), d.Len())
		if err != nil {
			return err
		}
		o.buf, o.total = ref, d.Len()
	case shm.OpFetch, shm.OpCas:
		if d.Class != shm.ClassInline || d.InlineLen > shm.InlineMax {
			return fmt.Errorf("operand of class %d", d.Class)
		}
	}
	return nil
}

func (c *Core) startOrigin(s *session, o *origin, id uint64, d *shm.Descriptor) {
	switch d.Op {
	case shm.OpPut:
		c.emitAccess(s, o, id, d, wire.Put, uint64(c.cfg.FragmentBytes))
	case shm.OpAcc:
		c.emitAccess(s, o, id, d, wire.Acc, accFragment)
	case shm.OpGet:
		if o.total == 0 {
			c.endOrigin(id, shm.StatusOK)
			return
		}
		h := c.emitRequest(s, wire.Get, d, id)
		h.Tag, h.B = d.Aux(), o.total
		o.waits = 1
	case shm.OpFetch, shm.OpCas:
		f, _ := c.emit(c.peerOf(d.Peer), wire.Fetch)
		f.Head.Context, f.Head.Src, f.Head.Dst = d.Context, s.endpoint.rank, d.Peer
		f.Head.Tag, f.Head.A, f.Head.B = d.Tag, id, uint64(d.Status)
		if d.Op == shm.OpCas {
			f.Head.B &^= 0xff
		}
		f.Head.Length = uint32(copy(f.Inline[:], d.Inline()))
		o.waits = 1
	case shm.OpLock:
		h := c.emitRequest(s, wire.Lock, d, id)
		if d.Flags&shm.FlagExclusive != 0 {
			h.B = 1
		}
		o.waits = 1
	case shm.OpUnlock:
		c.emitRequest(s, wire.Unlock, d, id)
		o.waits = 1
	case shm.OpFlush:
		c.startFlush(s, o, id, d)
	}
}

// emitRequest emits a frame without payload to d's target.
func (c *Core) emitRequest(s *session, t wire.Type, d *shm.Descriptor, id uint64) *wire.Header {
	f, _ := c.emit(c.peerOf(d.Peer), t)
	h := &f.Head
	h.Context, h.Src, h.Dst, h.A = d.Context, s.endpoint.rank, d.Peer, id
	return h
}

// emitAccess sends a Put or Accumulate in fragments. Small ones leave the
// application's memory at once; others are done when the last is acknowledged.
func (c *Core) emitAccess(s *session, o *origin, id uint64, d *shm.Descriptor, t wire.Type, fragment uint64) {
	p := c.peerOf(d.Peer)
	for off := uint64(0); off < o.total; {
		n := min(fragment, o.total-off)
		f, a := c.emit(p, t)
		h := &f.Head
		h.Context, h.Src, h.Dst = d.Context, s.endpoint.rank, d.Peer
		h.Tag, h.A, h.Length = d.Aux()+off, d.Tag, uint32(n)
		if o.total <= uint64(len(f.Inline)) {
			copy(f.Inline[:], c.ports.Bytes(o.buf))
			break
		}
		f.Payload = o.buf.Slice(off, n)
		*a = after{kind: afterOrigin, session: s.id, id: id, hold: true}
		c.hold(s.id)
		o.waits++
		p.out.queued += n
		off += n
		if off == o.total {
			h.Flags |= wire.FlagAckNow
		}
	}
	if o.waits == 0 {
		c.endOrigin(id, shm.StatusOK)
	}
}

// startFlush asks one target, or every sidecar that was ever talked to.
func (c *Core) startFlush(s *session, o *origin, id uint64, d *shm.Descriptor) {
	if d.Peer != shm.AnySource {
		c.emitRequest(s, wire.Flush, d, id)
		o.waits = 1
		return
	}
	for i := range c.peers {
		p := &c.peers[i]
		if p.state == peerIdle || p.state == peerDead {
			continue
		}
		f, _ := c.emit(p, wire.Flush)
		f.Head.Context, f.Head.Src, f.Head.A, f.Head.Tag = d.Context, s.endpoint.rank, id, 1
		f.Head.Dst = c.firstRank(p)
		o.waits++
	}
	if o.waits == 0 {
		c.endOrigin(id, shm.StatusOK)
	}
}

// firstRank is some rank of p's pod, for frames that mean all of them.
func (c *Core) firstRank(p *peer) uint32 {
	for r, pod := range c.cfg.PodOf {
		if link.Peer(pod) == p.id {
			return uint32(r)
		}
	}
	return 0
}

// originReached is told when a fragment of an access is acknowledged.
func (c *Core) originReached(id uint64) {
	if o := c.origins.get(id); o != nil {
		c.originStep(id, o)
	}
}

func (c *Core) originStep(id uint64, o *origin) {
	if o.waits--; o.waits == 0 {
		c.endOrigin(id, o.status)
	}
}

// onAnswer takes the answer to a fetch, lock, unlock or flush.
func (c *Core) onAnswer(p *peer, h *wire.Header, payload []byte) error {
	o := c.origins.get(h.A)
	if o == nil {
		return nil // ended meanwhile
	}
	if o.target != shm.AnySource && c.peerOf(o.target) != p || o.waits == 0 {
		return fmt.Errorf("%w: answer to a request of another sidecar", link.ErrProtocol)
	}
	switch h.Type {
	case wire.Fetched:
		if o.op != shm.OpFetch && o.op != shm.OpCas || len(payload) > shm.InlineMax {
			return fmt.Errorf("%w: fetched value nobody asked for", link.ErrProtocol)
		}
		c.endFetch(h.A, o, payload)
		return nil
	case wire.Flushed:
		if o.status == shm.StatusOK {
			o.status = shm.Status(h.B)
		}
	}
	c.originStep(h.A, o)
	return nil
}

func (c *Core) endFetch(id uint64, o *origin, value []byte) {
	d := shm.Descriptor{Op: shm.OpDone, Req: o.owner.req, Peer: o.target}
	d.SetInline(value)
	s := o.owner.session
	c.origins.release(id)
	c.complete(s, &d)
}

// endOrigin completes a one-sided operation.
func (c *Core) endOrigin(id uint64, status shm.Status) {
	o := c.origins.get(id)
	if o == nil {
		return
	}
	d := shm.Descriptor{Op: shm.OpDone, Req: o.owner.req, Peer: o.target, Status: status}
	s, held := o.owner.session, o.session
	c.origins.release(id)
	c.complete(s, &d)
	if held {
		c.unhold(s)
	}
}

// placeGot finds the place of a fragment that answers a Get.
func (c *Core) placeGot(p *peer, h *wire.Header) error {
	o := c.origins.get(h.A)
	if o == nil {
		c.discard(p, h)
		return nil
	}
	n := uint64(h.Length)
	if o.op != shm.OpGet || c.peerOf(o.target) != p || h.B != o.got || n == 0 || n > o.total-o.got {
		return fmt.Errorf("%w: %d bytes at %d that no get asked for", link.ErrProtocol, n, h.B)
	}
	c.target(p, h, placeGot, h.A, o.buf.Slice(h.B, n), c.sessions[o.owner.session])
	return nil
}

func (c *Core) gotPlaced(id uint64, in *inbound) {
	o := c.origins.get(id)
	if o == nil {
		return
	}
	if o.got += uint64(in.head.Length); o.got == o.total {
		c.endOrigin(id, shm.StatusOK)
	}
}

// originRemoteDone ends an access that went by remote read or write.
func (c *Core) originRemoteDone(id uint64, err error) {
	if o := c.origins.get(id); o != nil {
		if err != nil {
			o.status = shm.StatusInvalid
		}
		c.originStep(id, o)
	}
}
