package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/mover"
)

// Receives that are offered to their sender before it has announced anything
// (P§5.4), at their receiver. Matching goes on as if they were not: an offer is
// used by the message that would match the receive anyway, which needs the
// receive to be the first in line, and both sides to count alike.

// offerWindow bounds the receives of a rank that are offered to a peer.
const offerWindow = 64

// mayOffer reports whether a receive that is about to be posted may be offered
// to the peer that its message comes from.
func (c *Core) mayOffer(r *recv, from *peer, pat *match.Pattern) bool {
	if r.buf.Len <= c.eagerMax(from) || pat.Ignore != 0 || !c.path(from).Invites() || c.path(from).Large(r.buf.Len) {
		return false
	}
	if from.State() != channel.Ready || r.endpoint.offers[from.ID()] >= offerWindow || c.fail != nil {
		return false
	}
	before, found, alone := r.endpoint.space(r.coll).Youngest(*pat)
	if !alone || !found {
		return alone
	}
	b, _ := c.recvs.At(before)
	return b.offered
}

// offer tells the peer that r is ready. Where its memory cannot be registered
// nothing is told, and r is a receive like others.
func (c *Core) offer(from *peer, r *recv, id uint64, pat *match.Pattern) {
	c.stats.Offers++
	r.move = mover.Target{Want: r.capacity, Total: r.capacity, Mem: r.buf}
	step := r.move.Invite(c.path(from), c.draw())
	key, err := c.ports.Register(from.ID(), step.Mem)
	if err != nil {
		c.stats.Unregistered++
		r.move = mover.Target{}
		return
	}
	step = r.move.Ready(key, from.Current())
	if r.offered = true; r.endpoint.offers == nil {
		r.endpoint.offers = map[link.Peer]int{}
	}
	r.endpoint.offers[from.ID()]++
	if step.Poll {
		last := c.lastByte(r.buf)
		r.covered, last[0] = last[0], step.Guard
		c.polled = append(c.polled, id)
	}
	f, _ := c.channel.Emit(from.Peer, wire.Ready)
	h := &f.Head
	h.Context, h.Src, h.Dst, h.Tag = pat.Context, r.endpoint.rank, pat.Source, pat.Tag
	h.A, h.B = id, r.capacity
	if r.coll {
		h.Flags |= wire.FlagColl
	}
	h.Length = uint32(step.Ready.Encode(f.Inline[:]))
}

// draw returns a byte that no program's data can follow.
func (c *Core) draw() uint8 {
	c.dice ^= c.dice << 13
	c.dice ^= c.dice >> 7
	c.dice ^= c.dice << 17
	return uint8(c.dice >> 32)
}

// hasCome reports that the message of an offered receive is in its memory.
func (c *Core) hasCome(r *recv) bool {
	return r.move.Polling() && r.move.Come(c.lastByte(r.buf)[0])
}

// closeOffer makes r a receive like others. Its memory is as if it had not been
// offered. refused says that the sender knows, and does not write to it.
func (c *Core) closeOffer(r *recv, refused bool) {
	if !r.offered {
		return
	}
	if r.move.Polling() && !c.hasCome(r) {
		c.lastByte(r.buf)[0] = r.covered
	}
	from := c.peerOf(r.pattern.Source)
	if key, ok := r.move.Key(); ok {
		c.endKey(from.ID(), key, refused)
	}
	r.move = mover.Target{}
	c.countOffer(r)
}

func (c *Core) countOffer(r *recv) {
	r.offered = false
	r.endpoint.offers[c.job.PodOf(r.pattern.Source)]--
}

// take notes that a write to an offered receive is under way: nothing else
// matches it any more.
func (c *Core) take(r *recv) {
	if r.matched {
		return
	}
	r.endpoint.space(r.coll).Cancel(r.posted)
	r.matched = true
	r.source, r.tag, r.length, r.want = r.pattern.Source, r.pattern.Tag, r.capacity, r.capacity
	r.peer = c.job.PodOf(r.pattern.Source)
}

// put ends an offered receive whose message is here.
func (c *Core) put(r *recv, id uint64) {
	c.take(r)
	c.finishRendezvous(r, id)
}

// arriveOffered lets a message meet a receive that is offered: false when that
// has its message already, and the next one is to be asked.
func (c *Core) arriveOffered(r *recv, id uint64) bool {
	if c.hasCome(r) {
		c.put(r, id)
		return false
	}
	c.closeOffer(r, true) // else it would have said Taken before
	return true
}

// offeredTo finds the receive that a frame of its sender is about.
func (c *Core) offeredTo(p *peer, h *wire.Header) (*recv, error) {
	r := c.recvs.Get(h.A)
	if r == nil {
		return nil, c.recvs.Ended(h.A, "news of")
	}
	if c.peerOf(h.Src) != p || r.pattern.Source != h.Src {
		return nil, fmt.Errorf("%w: %v of a receive that was not offered to it", link.ErrProtocol, h.Type)
	}
	return r, nil
}

// onTaken notes that a write is under way.
func (c *Core) onTaken(p *peer, h *wire.Header) error {
	if _, err := c.hostedBy(p, h); err != nil {
		return err
	}
	r, err := c.offeredTo(p, h)
	if r == nil {
		return err
	}
	if !r.offered {
		return fmt.Errorf("%w: a receive is taken that is not offered", link.ErrProtocol)
	}
	if c.hasCome(r) {
		c.put(r, h.A)
	} else {
		c.take(r)
	}
	return nil
}

// withdraw asks for an offer back, so that its receive can be cancelled.
func (c *Core) withdraw(r *recv, id uint64) {
	if r.withdrawn {
		return
	}
	r.withdrawn = true
	f, _ := c.channel.Emit(c.peerOf(r.pattern.Source).Peer, wire.Withdraw)
	f.Head.Src, f.Head.Dst, f.Head.A = r.endpoint.rank, r.pattern.Source, id
}

// onWithdrawn ends a receive that was to be cancelled, or makes one like others
// of it that the sender does not want.
func (c *Core) onWithdrawn(p *peer, h *wire.Header) error {
	if _, err := c.hostedBy(p, h); err != nil {
		return err
	}
	r, err := c.offeredTo(p, h)
	switch {
	case r == nil:
		return err
	case r.offered && c.hasCome(r):
		c.put(r, h.A)
	case r.matched || h.B == 0: // it has its message, or gets it
	case r.withdrawn:
		c.closeOffer(r, true)
		r.endpoint.space(r.coll).Cancel(r.posted)
		c.endRecv(h.A, r, r.withdrawal())
	default:
		c.closeOffer(r, true)
	}
	return nil
}

// onPut is told of the end of a write to an offered receive that the last byte
// does not tell of, and of one that has failed, which is pulled from the send
// that it names.
func (c *Core) onPut(p *peer, r *recv, id uint64, whole bool, h *wire.Header) {
	if whole || c.hasCome(r) {
		c.put(r, id)
		if !whole {
			c.tellFin(p, h.Tag, shm.StatusOK)
		}
		return
	}
	c.take(r)
	c.closeOffer(r, false)
	r.move = mover.Target{Remote: h.Tag, Total: r.length, Want: r.want}
	c.moveTarget(p, r, id, r.move.Again())
}
