package outrigger

import (
	"context"
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// AnySource and AnyTag are the wildcards of receives and probes.
const (
	AnySource = -1
	AnyTag    = -1
)

// TagMax is the largest tag.
const TagMax = 1<<31 - 1

// silentMax bounds the sends that nobody has confirmed yet.
const silentMax = 1024

// begin starts an operation of communicator c with its request number.
// Preconditions: s.mu is held.
func (s *Session) begin(what string, c *Comm, peer, tag, n int) (*op, uint32, error) {
	if s.closed {
		return nil, 0, ErrClosed
	}
	if s.gone.Load() {
		return nil, 0, s.withFailure(ErrSidecarGone)
	}
	o, id, err := s.ops.alloc()
	if err != nil {
		if err := s.progress(); err != nil {
			return nil, 0, err
		}
		if o, id, err = s.ops.alloc(); err != nil {
			return nil, 0, err
		}
	}
	o.what, o.comm, o.peer, o.tag, o.bytes = what, c, peer, tag, n
	return o, id, nil
}

func (c *Comm) checkPeer(peer int) error {
	if peer < 0 || peer >= len(c.ranks) {
		return fmt.Errorf("%w: rank %d of a communicator of %d", ErrInvalid, peer, len(c.ranks))
	}
	return nil
}

func checkTag(tag int) error {
	if tag < 0 || tag > TagMax {
		return fmt.Errorf("%w: tag %d, want 0 to %d", ErrInvalid, tag, TagMax)
	}
	return nil
}

// sendMode tells the kinds of send apart.
type sendMode uint8

const (
	sendPlain    sendMode = iota
	sendSync              // complete only when matched
	sendBuffered          // the caller does not wait once its buffer is free
)

// startSend submits a send. A zero Request means that it is complete for the
// caller.
func (c *Comm) startSend(what string, buf []byte, dst, tag int, mode sendMode) (Request, error) {
	s := c.session
	if err := errors.Join(c.checkPeer(dst), checkTag(tag)); err != nil {
		return Request{}, s.fail(what, c, dst, tag, len(buf), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := c.submitSend(what, buf, dst, tag, mode)
	if err != nil {
		return Request{}, s.fail(what, c, dst, tag, len(buf), err)
	}
	return r, nil
}

func (c *Comm) submitSend(what string, buf []byte, dst, tag int, mode sendMode) (Request, error) {
	s := c.session
	d := &s.d
	if len(buf) <= shm.InlineMax && mode != sendSync && !s.failed && !s.gone.Load() && s.maySilent() {
		*d = shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: c.ranks[dst], Context: c.context, Tag: uint64(tag)}
		d.SetInline(buf)
		s.silent++
		return Request{}, s.push()
	}
	o, id, err := s.begin(what, c, dst, tag, len(buf))
	if err != nil {
		return Request{}, err
	}
	*d = shm.Descriptor{Op: shm.OpSend, Req: id, Peer: c.ranks[dst], Context: c.context, Tag: uint64(tag)}
	if mode == sendSync {
		d.Flags = shm.FlagSync
	}
	c.describe(d, o, buf, true)
	// A copy of the payload is in the slab: the caller's buffer is free.
	free := mode == sendBuffered && o.slotted
	if free {
		o.detached = true
		s.ops.detached++
	}
	if err := s.push(); err != nil {
		return Request{}, err
	}
	if o.staged {
		if err := s.stage(id, o); err != nil {
			return Request{}, err
		}
	}
	if free {
		return Request{}, nil
	}
	return Request{s, id, o.gen}, nil
}

// maySilent reports whether one more unconfirmed send is allowed.
func (s *Session) maySilent() bool {
	if s.silent-s.retired < silentMax {
		return true
	}
	s.retired = s.control.Retired()
	return s.silent-s.retired < silentMax
}

// describe says where the payload is: in the descriptor, in the arena, in a
// slab slot, or in private memory that is staged in chunks.
func (c *Comm) describe(d *shm.Descriptor, o *op, buf []byte, sending bool) {
	s := c.session
	n := uint64(len(buf))
	aux := d.Aux()
	off, shared := s.inArena(buf)
	switch {
	case len(buf) <= shm.InlineMax && sending:
		d.SetInline(buf)
		return
	case len(buf) <= shm.InlineMax:
		d.Class, d.InlineLen = shm.ClassInline, uint8(n)
		o.buf = buf
	case shared:
		d.Class = shm.ClassArena
		d.SetBody(uint64(off), n, aux, d.Aux2())
	default:
		slot, ok := uint64(0), false
		if n <= s.slab.slotBytes {
			slot, ok = s.slab.slot()
		}
		if !ok {
			d.Class = shm.ClassStaged
			d.SetBody(0, n, aux, d.Aux2())
			o.staged, o.buf = true, buf
			if sending {
				o.want = len(buf)
			}
			return
		}
		o.slot, o.slotted = slot, true
		d.Class = shm.ClassSlab
		d.SetBody(slot, n, aux, d.Aux2())
		if sending {
			copy(s.slabMem[slot:], buf)
		} else {
			o.buf = buf
		}
	}
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
		d.Peer = c.ranks[src]
	}
	d.Context = c.context
	d.SetBody(0, 0, ignore, 0)
	return nil
}

func (c *Comm) startRecv(what string, buf []byte, src, tag int, handle uint64) (Request, error) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := c.submitRecv(what, buf, src, tag, handle)
	if err != nil {
		return Request{}, s.fail(what, c, src, tag, len(buf), err)
	}
	return r, nil
}

func (c *Comm) submitRecv(what string, buf []byte, src, tag int, handle uint64) (Request, error) {
	s := c.session
	s.d = shm.Descriptor{Op: shm.OpRecv}
	if err := c.pattern(&s.d, src, tag); err != nil {
		return Request{}, err
	}
	d := s.d
	o, id, err := s.begin(what, c, src, tag, len(buf))
	if err != nil {
		return Request{}, err
	}
	o.receives, o.source = true, shm.AnySource
	d.Req = id
	if handle != 0 {
		d.Op = shm.OpMrecv
		d.SetBody(0, 0, d.Aux(), handle)
	}
	c.describe(&d, o, buf, false)
	s.d = d
	if err := s.push(); err != nil {
		return Request{}, err
	}
	return Request{s, id, o.gen}, nil
}

// await waits for a blocking call's request. When ctx ends first, the request
// is cancelled, and its buffer is the caller's again on return.
func (r Request) await(ctx context.Context) (Status, error) {
	st, err := r.Wait(ctx)
	if err == nil || r.s == nil || ctx.Err() == nil {
		return st, err
	}
	if cancelErr := r.Cancel(); cancelErr != nil {
		return st, errors.Join(err, cancelErr)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	st, waitErr := r.Wait(end)
	if errors.Is(waitErr, ErrCancelled) {
		return st, err
	}
	return st, waitErr // the message was faster, or something worse happened
}
