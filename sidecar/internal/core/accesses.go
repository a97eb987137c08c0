package core

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The room of one-sided operations lies between this package and the streams of frames,
// which are in this package, too: host is the latter, as the room knows them.

var (
	_ onesided.Channel = host{}
	_ onesided.Job     = host{}
)

// A payload that passes through the pool fits it.
const _ = uint(eagerLimit - onesided.AccFragment)

func (c *Core) openOneSided() {
	cfg := onesided.Config{
		Self: c.cfg.Self, PodOf: c.cfg.PodOf, First: make([]uint32, len(c.peers)),
		Fragment: uint64(c.cfg.FragmentBytes), OwnFragment: c.peers[c.cfg.Self].fragment,
	}
	for i := range c.peers {
		cfg.First[i] = c.peers[i].first
	}
	h := host{c}
	c.onesided = onesided.New(cfg, c.ports, c.ranks, h, h)
}

func (h host) Emit(p link.Peer, t wire.Type) *link.Frame {
	f, _ := h.c.emit(&h.c.peers[p], t)
	return f
}

func (h host) Answer(p link.Peer, t wire.Type) *link.Frame { return h.c.answer(&h.c.peers[p], t) }

// releases are what is done when a frame of a one-sided operation is acknowledged.
var releases = [...]channel.ReleaseKind{
	onesided.ReleaseNone: afterNothing, onesided.ReleaseAccess: afterOrigin, onesided.ReleaseGet: afterGot,
}

func (h host) EmitFrom(p link.Peer, t wire.Type, m onesided.Payload) *link.Frame {
	to := &h.c.peers[p]
	f, a := h.c.emit(to, t)
	f.Payload = m.Memory
	*a = after{Kind: releases[m.Release], Session: m.Session, ID: m.ID, Hold: true}
	to.out.Charge(m.Memory.Len)
	return f
}

func (h host) Queue(p link.Peer, rank uint32, t onesided.Turn) {
	to, kind := &h.c.peers[p], entryAccess
	if t.Get {
		kind = entryGot
	}
	to.streams.Add(rank, entry{kind, t.ID})
	h.c.touch(to)
}

func (h host) Wake(p link.Peer) {
	if to := &h.c.peers[p]; !to.streams.Empty() {
		h.c.touch(to)
	}
}

func (h host) Reach(p link.Peer) { h.c.reach(&h.c.peers[p]) }

// standings are what the state of a peer alone says (over, beyond).
var standings = [...]onesided.Standing{
	peerIdle: onesided.Idle, peerConnecting: 0, peerGreeting: 0, peerReady: onesided.Ready,
	peerDead: onesided.Dead | onesided.Over | onesided.Beyond, peerDenied: onesided.Beyond,
}

func (h host) Standing(id link.Peer) onesided.Standing {
	p := &h.c.peers[id]
	s := standings[p.state]
	if p.gen > h.c.gen {
		s |= onesided.Over
	}
	if p.bye {
		if s |= onesided.Bye; s&onesided.Idle != 0 {
			s |= onesided.Beyond
		}
	}
	if p.ahead() {
		s |= onesided.Full
	}
	return s
}

func (h host) Caps(p link.Peer) link.Caps { return h.c.peers[p].caps }

func (h host) Access(p link.Peer, a onesided.Access) (err error) {
	token := h.c.remote(remoteAccess, a.Session, a.Done.ID)
	op := h.c.remotes.Get(token)
	op.other, op.rank = a.Done.View, a.Done.Rank
	if a.Write {
		err = h.c.ports.Write(p, token, a.Memory, a.Key, 0)
	} else {
		err = h.c.ports.Read(p, token, a.Memory, a.Key)
	}
	if err != nil {
		h.c.cancelRemote(token)
	}
	return err
}

func (h host) Charge(p link.Peer, n int64) error { return h.c.peers[p].account.Charge(n) }

func (h host) Refund(p link.Peer, n int64) { h.c.peers[p].account.Refund(n) }

func (h host) Lost(p link.Peer) shm.Status { return h.c.lost(&h.c.peers[p]) }

func (h host) Now() int64 { return h.c.now }

// placeOneSided finds the destination of a payload of a one-sided operation.
func (c *Core) placeOneSided(p *peer, h *wire.Header) error {
	to, err := c.onesided.Place(p.id, h)
	dst, s := to.Memory, (*session)(nil)
	switch to.Where {
	case onesided.Nowhere:
		return err
	case onesided.Discard:
		dst = link.Ref{Region: RegionDiscard, Len: uint64(h.Length)}
	case onesided.Pool:
		var ok bool
		if dst, ok = c.pool.passing(uint64(h.Length)); !ok {
			return errGranted
		}
	case onesided.Memory:
		s = c.sessions[to.Session]
	}
	c.target(p, h, placeOneSided, to.Of.ID, dst, s)
	p.in.of = to.Of.Kind
	return err
}

// oneSidedPlaced goes on with it.
func (c *Core) oneSidedPlaced(p *peer, in *inbound) {
	c.onesided.Placed(p.id, in.oneSided(), &in.head, in.dst)
	if in.dst.Region == RegionPool {
		c.pool.passed(in.dst)
	}
}

func (in *inbound) oneSided() onesided.Inbound { return onesided.Inbound{Kind: in.of, ID: in.id} }

// divert lets the payload of a put that was cut off come again into memory that is not read
// if its window has ended meanwhile.
func (c *Core) divert(p *peer) {
	in := &p.in
	if !in.active || in.kind != placeOneSided || !c.onesided.Divert(in.oneSided()) {
		return
	}
	s := in.session
	in.kind, in.id, in.hold = placeDiscard, 0, false
	in.dst = link.Ref{Region: RegionDiscard, Len: uint64(in.head.Length)}
	c.ranks.Unhold(s)
}
