package core

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// streams is the streams of frames to the peers and their links, as the room of one-sided
// operations knows them.
type streams struct{ c *Core }

var _ onesided.Channel = streams{}

// A fragment of an accumulate fits into the pool.
const _ = uint(p2p.EagerLimit - onesided.AccFragment)

func (c *Core) openOneSided() {
	cfg := onesided.Config{
		Self: c.cfg.Self, PodOf: c.cfg.PodOf, First: make([]uint32, len(c.peers)),
		Fragment: uint64(c.cfg.FragmentBytes), OwnFragment: channel.OwnFragment(uint64(c.cfg.FragmentBytes)),
	}
	for i := range c.peers {
		cfg.First[i] = c.peers[i].first
	}
	c.onesided = onesided.New(cfg, c.ports, c.ranks, streams{c}, c.job)
}

func (x streams) Emit(p link.Peer, t wire.Type) *link.Frame {
	f, _ := x.c.channel.Emit(x.c.peers[p].Peer, t)
	return f
}

func (x streams) Answer(p link.Peer, t wire.Type) *link.Frame {
	return x.c.channel.Answer(x.c.peers[p].Peer, t)
}

// releases maps the release of a frame of a one-sided operation to the kind of the streams of
// frames.
var releases = [...]channel.ReleaseKind{
	onesided.ReleaseNone: channel.ReleaseNothing, onesided.ReleaseAccess: afterOrigin, onesided.ReleaseGet: afterGot,
}

func (x streams) EmitFrom(p link.Peer, t wire.Type, m onesided.Payload) *link.Frame {
	to := &x.c.peers[p]
	f, a := x.c.channel.Emit(to.Peer, t)
	f.Payload = m.Memory
	*a = channel.Release{Kind: releases[m.Release], Session: m.Session, ID: m.ID, Hold: true}
	to.Out().Charge(m.Memory.Len)
	return f
}

func (x streams) Queue(p link.Peer, rank uint32, t onesided.Turn) {
	kind := transferAccess
	if t.Get {
		kind = transferGot
	}
	x.c.channel.Add(x.c.peers[p].Peer, rank, channel.Transfer{Kind: kind, ID: t.ID})
}

func (x streams) Wake(p link.Peer) {
	x.c.channel.Wake(x.c.peers[p].Peer)
}

func (x streams) Reach(p link.Peer) { x.c.channel.Reach(x.c.peers[p].Peer) }

// peerStates maps the state of a peer's connection.
var peerStates = [...]onesided.PeerState{
	channel.Idle: onesided.Idle, channel.Connecting: 0, channel.Greeting: 0, channel.Ready: onesided.Ready,
	channel.Dead: onesided.Dead | onesided.Ended | onesided.Unreachable, channel.Rejected: onesided.Unreachable,
}

func (x streams) PeerState(id link.Peer) onesided.PeerState {
	p := &x.c.peers[id]
	s := peerStates[p.State()]
	if p.Ahead() {
		s |= onesided.Ended
	}
	if p.Gone() {
		if s |= onesided.Leaving; s&onesided.Idle != 0 {
			s |= onesided.Unreachable
		}
	}
	if p.Full() {
		s |= onesided.Full
	}
	return s
}

func (x streams) Caps(p link.Peer) link.Caps { return x.c.peers[p].Caps() }

func (x streams) Access(p link.Peer, a onesided.Access) (err error) {
	return x.c.p2p.Access(p, a.Write, p2p.Foreign{Session: a.Session, ID: a.Done.ID, View: a.Done.View, Rank: a.Done.Rank}, a.Memory, a.Key)
}

func (x streams) Charge(p link.Peer, n int64) error { return x.c.peers[p].Account().Charge(n) }

func (x streams) Refund(p link.Peer, n int64) { x.c.peers[p].Account().Refund(n) }

func (x streams) Now() int64 { return x.c.now }

// placeOneSided returns the destination of a payload of a one-sided operation.
func (c *Core) placeOneSided(p *peer, h *wire.Header) (link.Ref, error) {
	to, err := c.onesided.Place(p.ID(), h)
	if err != nil {
		return link.Ref{}, err
	}
	dst := to.Memory
	switch to.Where {
	case onesided.Discard:
		dst = link.Ref{Region: RegionDiscard, Len: uint64(h.Length)}
	case onesided.Pool:
		var ok bool
		if dst, ok = c.p2p.Passing(uint64(h.Length)); !ok {
			return dst, p2p.ErrGranted
		}
	}
	p.in = inbound{of: to.Of, session: to.Session, held: to.Where == onesided.Memory}
	if p.in.held {
		c.ranks.Hold(to.Session)
	}
	return dst, nil
}

// oneSidedPlaced continues the operation whose payload is at its destination.
func (c *Core) oneSidedPlaced(p *peer, h *wire.Header, at link.Ref) {
	in := p.in
	p.in = inbound{}
	c.onesided.Placed(p.ID(), in.of, h, at)
	if at.Region == RegionPool {
		c.p2p.Passed(at)
	}
	if in.held {
		c.ranks.Unhold(in.session)
	}
}

// dropOneSided gives such a payload up.
func (c *Core) dropOneSided(p *peer, at link.Ref) {
	in := p.in
	p.in = inbound{}
	if at.Region == RegionPool {
		c.p2p.Passed(at)
	}
	c.onesided.Dropped(in.of)
	if in.held {
		c.ranks.Unhold(in.session)
	}
}

// divert changes the destination of the payload of a put that a broken connection has interrupted, if
// the window has ended meanwhile: the repeated payload is discarded.
func (c *Core) divert(p *peer) {
	h, _, is := p.Placing()
	if !is || !c.onesided.Divert(p.ID(), p.in.of, h) {
		return
	}
	in := p.in
	p.in = inbound{}
	p.Redirect(link.Ref{Region: RegionDiscard, Len: uint64(h.Length)})
	c.ranks.Unhold(in.session)
}
