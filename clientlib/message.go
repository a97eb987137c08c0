package outrigger

import (
	"context"
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// NullRank is no rank (MPI_PROC_NULL): a message to it is discarded, and a receive from it completes
// at once without a message. It is the neighbour beyond the edge of a grid.
const NullRank = -2

// AnySource and AnyTag are the wildcards of receives and probes.
const (
	AnySource = -1
	AnyTag    = -1
)

// TagMax is the largest tag.
const TagMax = 1<<31 - 1

// silentMax bounds the silent sends that the engine has not taken over yet; the contract allows
// 65,536. A send beyond it gets a request.
const silentMax = 1024

func (c *Comm) checkPeer(peer int) error {
	if peer < 0 || peer >= c.size {
		return fmt.Errorf("%w: rank %d of a communicator of %d", ErrInvalid, peer, c.size)
	}
	return nil
}

func checkTag(tag int) error {
	if tag < 0 || tag > TagMax {
		return fmt.Errorf("%w: tag %d, want 0 to %d", ErrInvalid, tag, TagMax)
	}
	return nil
}

// sendMode is the kind of a send.
type sendMode uint8

const (
	sendPlain    sendMode = iota
	sendSync              // the send completes only when its message is matched
	sendBuffered          // the call returns when its buffer is free
)

// startSend submits a send. If it returns a zero Request, the caller need not wait.
func (c *Comm) startSend(ctx context.Context, what string, e elements, dst, tag int, mode sendMode) (Request, error) {
	if dst == NullRank {
		return Request{}, nil
	}
	s, buf := c.session, e.mem
	if err := errors.Join(c.checkPeer(dst), checkTag(tag), s.liveLarge(buf)); err != nil {
		return Request{}, s.fail(what, c, dst, tag, len(buf), err)
	}
	if err := s.enterCall(ctx); err != nil {
		return Request{}, s.fail(what, c, dst, tag, len(buf), err)
	}
	defer s.mu.Unlock()
	r, err := c.submitSend(what, e, dst, tag, mode)
	if err != nil {
		return Request{}, s.fail(what, c, dst, tag, len(buf), err)
	}
	return r, nil
}

func (c *Comm) submitSend(what string, e elements, dst, tag int, mode sendMode) (Request, error) {
	s, buf := c.session, e.mem
	if len(buf) <= shm.InlineMax && mode != sendSync && !s.failed && s.maySilent() {
		return Request{}, c.sendSilently(e, dst, tag)
	}
	o, r, err := s.begin(what, c, dst, tag, len(buf))
	if err != nil {
		return Request{}, err
	}
	d := shm.Descriptor{Op: shm.OpSend, Peer: c.world(dst), Context: c.context, Tag: uint64(tag)}
	if mode == sendSync {
		d.Flags = shm.FlagSync
	}
	s.describeType(&d, e.typ)
	c.describe(&d, o, buf, true)
	if mode == sendBuffered && (o.slotted || o.whole) {
		// A copy of the payload is in the slab: the caller's buffer is free.
		o.detached, o.buffered = true, true
	}
	buffered := o.buffered
	if r, err = s.submitOp(r, o, &d); err != nil {
		return Request{}, err
	}
	o.sends = true
	if s.ops.sending++; buffered {
		return Request{}, nil
	}
	return r, s.stage(r.id, o)
}

// sendSilently sends a small message that has no request and no completion; the engine counts it as
// retired when it has taken it over.
func (c *Comm) sendSilently(e elements, dst, tag int) error {
	s := c.session
	if err := s.usable(c); err != nil {
		return err
	}
	d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: c.world(dst), Context: c.context, Tag: uint64(tag)}
	s.describeType(&d, e.typ)
	d.SetInline(e.mem)
	if err := s.push(&d); err != nil {
		return err
	}
	s.silent++
	return nil
}

// maySilent reports whether one more unconfirmed send is allowed.
func (s *Session) maySilent() bool {
	if s.silent-s.retired < silentMax {
		return true
	}
	s.retired = s.control.Retired()
	return s.silent-s.retired < silentMax
}

// describeType puts the type of a message's elements into a send.
func (s *Session) describeType(d *shm.Descriptor, typ uint8) {
	if typ != 0 && s.hasTypes {
		d.Flags |= shm.FlagTyped
		d.Status = shm.Status(typ)
	}
}

// describe chooses where the payload is: in the descriptor, in the arena, in a slot of the slab, in
// one chunk, or in private memory that is staged in chunks.
func (c *Comm) describe(d *shm.Descriptor, o *op, buf []byte, sending bool) {
	s := c.session
	n := uint64(len(buf))
	if n <= shm.InlineMax && sending {
		d.SetInline(buf)
		return
	}
	if n <= shm.InlineMax {
		d.Class, d.InlineLen = shm.ClassInline, uint8(n)
		o.buf = buf
		if off, shared := s.inArena(buf); shared {
			o.uses[0] = span{off, len(buf)}
		}
		return
	}
	off, shared := s.inArena(buf)
	addr := uint64(off)
	switch {
	case shared:
		d.Class, o.lent = shm.ClassArena, true
		o.uses[0] = span{off, len(buf)}
	case s.allocSlot(o, n):
		d.Class, addr = shm.ClassSlab, o.slot
		if sending {
			copy(s.slabMem[o.slot:], buf)
		} else {
			o.buf = buf
		}
	default:
		d.Class, addr = s.describeLarge(o, buf, sending)
	}
	d.SetBody(addr, n, d.Aux(), d.Aux2())
}

// describeLarge chooses where a payload of private memory is that is too large for a slot.
func (s *Session) describeLarge(o *op, buf []byte, sending bool) (shm.Class, uint64) {
	at, exposed := s.exposedAt(buf)
	if !exposed && s.allocWhole(o, len(buf)) {
		k := o.spare.list[0]
		if sending {
			copy(s.memoryOf(k), buf)
		} else {
			o.buf = buf
		}
		return k.class, k.off
	}
	o.buf, o.room = buf, len(buf)
	if sending {
		o.want = len(buf)
	}
	if exposed {
		o.lent, o.exposed = true, true
		return shm.ClassExposed, at
	}
	return shm.ClassStaged, 0
}

// allocSlot allocates a slot of the slab for n bytes, if they fit and there is one.
func (s *Session) allocSlot(o *op, n uint64) bool {
	if n <= s.slab.slotBytes {
		o.slot, o.slotted = s.slab.slot()
	}
	return o.slotted
}

// pattern translates source and tag, with wildcards, into a descriptor.
func (c *Comm) pattern(d *shm.Descriptor, src, tag int) error {
	ignore := uint64(0)
	switch {
	case tag == AnyTag:
		ignore = ^uint64(0)
	default:
		if err := checkTag(tag); err != nil {
			return err
		}
		d.Tag = uint64(tag)
	}
	d.Peer = shm.AnySource
	if src != AnySource {
		if err := c.checkPeer(src); err != nil {
			return err
		}
		d.Peer = c.world(src)
	}
	d.Context = c.context
	d.SetBody(0, 0, ignore, 0)
	return nil
}

// liveLarge is live for messages that are not copied into a descriptor.
func (s *Session) liveLarge(buf []byte) error {
	if len(buf) <= shm.InlineMax {
		return nil
	}
	return s.live(buf)
}

func (c *Comm) startRecv(ctx context.Context, what string, e elements, src, tag int, handle uint64) (Request, error) {
	if src == NullRank {
		return Request{}, nil
	}
	s, buf := c.session, e.mem
	if err := s.liveLarge(buf); err != nil {
		return Request{}, s.fail(what, c, src, tag, len(buf), err)
	}
	if err := s.enterCall(ctx); err != nil {
		return Request{}, s.fail(what, c, src, tag, len(buf), err)
	}
	defer s.mu.Unlock()
	r, err := c.submitRecv(what, e, src, tag, handle)
	if err != nil {
		return Request{}, s.fail(what, c, src, tag, len(buf), err)
	}
	return r, nil
}

func (c *Comm) submitRecv(what string, e elements, src, tag int, handle uint64) (Request, error) {
	s, buf := c.session, e.mem
	d := shm.Descriptor{Op: shm.OpRecv}
	if err := c.pattern(&d, src, tag); err != nil {
		return Request{}, err
	}
	o, r, err := s.begin(what, c, src, tag, len(buf))
	if err != nil {
		return Request{}, err
	}
	o.receives, o.source, o.typ = true, shm.AnySource, e.typ
	if handle != 0 {
		d.Op = shm.OpMrecv
		d.SetBody(0, 0, d.Aux(), handle)
	}
	c.describe(&d, o, buf, false)
	return s.submitOp(r, o, &d)
}
