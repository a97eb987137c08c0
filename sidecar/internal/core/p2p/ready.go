package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// Receives that are offered to their sender before it has announced a message (P§5.4), at the
// receiver. Matching does not change: the message that uses an offer is the one that would match
// the receive without it. For that the receive must be the first of its envelope, and both sides
// must count alike.

// OfferWindow bounds the receives of a rank that are offered to a peer.
const OfferWindow = 64

// mayOffer reports whether a receive that is about to be posted may be offered to the peer
// from which its message will arrive.
func (rx *receiver) mayOffer(r *recv, from *peer, pat *match.Pattern) bool {
	if r.buf.Len <= rx.eagerMax(from) || pat.Ignore != 0 || !rx.path(from).Invites() || rx.path(from).Large(r.buf.Len) {
		return false
	}
	if from.State() != channel.Ready || r.endpoint.offers[from.ID()] >= OfferWindow || rx.job.Failed() {
		return false
	}
	before, found, alone := r.endpoint.space(r.coll).Youngest(*pat)
	if !alone || !found {
		return alone
	}
	b, _ := rx.recvs.At(before)
	return b.offered
}

// offer sends the offer of r. If its memory cannot be registered, r is an ordinary receive.
func (rx *receiver) offer(from *peer, r *recv, id uint64, pat *match.Pattern) {
	rx.stats.Offers++
	r.move = rendezvous.Target{Want: r.capacity, Total: r.capacity, Mem: r.buf}
	step := r.move.Invite(rx.path(from), rx.draw())
	key, err := rx.ports.Register(from.ID(), step.Mem)
	if err != nil {
		rx.stats.Unregistered++
		r.move = rendezvous.Target{}
		return
	}
	step = r.move.Ready(key, from.Current())
	if r.offered = true; r.endpoint.offers == nil {
		r.endpoint.offers = map[link.Peer]int{}
	}
	r.endpoint.offers[from.ID()]++
	if step.Poll {
		last := rx.lastByte(r.buf)
		r.covered, last[0] = last[0], step.Guard
		rx.polled = append(rx.polled, id)
	}
	f, _ := rx.channel.Emit(from.Peer, wire.Ready)
	h := &f.Head
	h.Context, h.Src, h.Dst, h.Tag = pat.Context, r.endpoint.rank, pat.Source, pat.Tag
	h.A, h.B = id, r.capacity
	if r.coll {
		h.Flags |= wire.FlagColl
	}
	h.Length = uint32(step.Ready.Encode(f.Inline[:]))
}

// draw returns a random guard byte, which a program cannot predict.
func (rx *receiver) draw() uint8 {
	rx.dice ^= rx.dice << 13
	rx.dice ^= rx.dice >> 7
	rx.dice ^= rx.dice << 17
	return uint8(rx.dice >> 32)
}

// hasCome reports whether the message of an offered receive is in its memory.
func (rx *receiver) hasCome(r *recv) bool {
	return r.move.Polling() && r.move.Arrived(rx.lastByte(r.buf)[0])
}

// closeOffer makes r an ordinary receive, and restores its memory. refused means that the
// sender has agreed, and does not write to it.
func (rx *receiver) closeOffer(r *recv, refused bool) {
	if !r.offered {
		return
	}
	if r.move.Polling() && !rx.hasCome(r) {
		rx.lastByte(r.buf)[0] = r.covered
	}
	from := rx.peerOf(r.pattern.Source)
	if key, ok := r.move.Key(); ok {
		rx.endKey(from.ID(), key, refused)
	}
	r.move = rendezvous.Target{}
	rx.countOffer(r)
}

func (rx *receiver) countOffer(r *recv) {
	r.offered = false
	r.endpoint.offers[rx.job.PodOf(r.pattern.Source)]--
}

// claimOffered records that a write to an offered receive is under way: no other message matches it
// any more.
func (rx *receiver) claimOffered(r *recv) {
	if r.matched {
		return
	}
	r.endpoint.space(r.coll).Cancel(r.posted)
	r.matched = true
	r.source, r.tag, r.length, r.want = r.pattern.Source, r.pattern.Tag, r.capacity, r.capacity
	r.peer = rx.job.PodOf(r.pattern.Source)
}

// finishOffered ends an offered receive whose message has arrived.
func (rx *receiver) finishOffered(r *recv, id uint64) {
	rx.claimOffered(r)
	rx.finishRendezvous(r, id)
}

// meetOffered matches a message with a receive that is offered. It reports false if that receive has
// a message already, and the next receive has to be tried.
func (rx *receiver) meetOffered(r *recv, id uint64) bool {
	if rx.hasCome(r) {
		rx.finishOffered(r, id)
		return false
	}
	rx.closeOffer(r, true) // else the sender would have sent Taken before
	return true
}

// offeredTo returns the receive that a frame of its sender names.
func (rx *receiver) offeredTo(p *peer, h *wire.Header) (*recv, error) {
	r := rx.recvs.Get(h.A)
	if r == nil {
		return nil, rx.recvs.Ended(h.A, "news of")
	}
	if rx.peerOf(h.Src) != p || r.pattern.Source != h.Src {
		return nil, fmt.Errorf("%w: %v of a receive that was not offered to it", link.ErrProtocol, h.Type)
	}
	return r, nil
}

// onTaken records that a write is under way.
func (rx *receiver) onTaken(p *peer, h *wire.Header) error {
	if _, err := rx.hostedBy(p, h); err != nil {
		return err
	}
	r, err := rx.offeredTo(p, h)
	if r == nil {
		return err
	}
	if !r.offered {
		return fmt.Errorf("%w: a receive is taken that is not offered", link.ErrProtocol)
	}
	if rx.hasCome(r) {
		rx.finishOffered(r, h.A)
	} else {
		rx.claimOffered(r)
	}
	return nil
}

// withdrawOffer asks the sender to give an offer back, so that its receive can be cancelled.
func (rx *receiver) withdrawOffer(r *recv, id uint64) {
	if r.withdrawn {
		return
	}
	r.withdrawn = true
	f, _ := rx.channel.Emit(rx.peerOf(r.pattern.Source).Peer, wire.Withdraw)
	f.Head.Src, f.Head.Dst, f.Head.A = r.endpoint.rank, r.pattern.Source, id
}

// onWithdrawn ends a receive that was to be cancelled, or makes a receive whose offer the sender
// does not use an ordinary one.
func (rx *receiver) onWithdrawn(p *peer, h *wire.Header) error {
	if _, err := rx.hostedBy(p, h); err != nil {
		return err
	}
	r, err := rx.offeredTo(p, h)
	switch {
	case r == nil:
		return err
	case r.offered && rx.hasCome(r):
		rx.finishOffered(r, h.A)
	case r.matched || h.B == 0: // its message has arrived, or will arrive
	case r.withdrawn:
		rx.closeOffer(r, true)
		r.endpoint.space(r.coll).Cancel(r.posted)
		rx.endRecv(h.A, r, r.withdrawal())
	default:
		rx.closeOffer(r, true)
	}
	return nil
}

// onPut handles the end of a write to an offered receive if the last byte cannot show it, and a
// write that has failed: the message is then pulled from the send that the frame names.
func (rx *receiver) onPut(p *peer, r *recv, id uint64, whole bool, h *wire.Header) {
	if whole || rx.hasCome(r) {
		rx.finishOffered(r, id)
		if !whole {
			rx.sendFin(p, h.Tag, shm.StatusOK)
		}
		return
	}
	rx.claimOffered(r)
	rx.closeOffer(r, false)
	r.move = rendezvous.Target{Remote: h.Tag, Total: r.length, Want: r.want}
	rx.moveTarget(p, r, id, r.move.Again())
}
