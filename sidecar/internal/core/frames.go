package core

import (
	"errors"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The events of links go to the room of the streams of frames, and what it calls comes back
// through upper.

// Poster takes frames to a peer: a link, as the engine sees it.
type Poster = channel.Poster

// LinkUp reports a fresh connection to peer.
func (c *Core) LinkUp(now int64, id link.Peer, caps link.Caps) {
	c.now = now
	c.channel.LinkUp(now, id, caps)
}

// LinkDown reports that the connection to peer broke. A peer that broke the
// protocol is not worth another connection: the job fails.
func (c *Core) LinkDown(now int64, id link.Peer, err error) {
	c.now = now
	c.channel.LinkDown(now, id, err)
}

// LinkFailed reports that no connection to peer could be made, finally.
func (c *Core) LinkFailed(now int64, id link.Peer, err error) {
	c.now = now
	c.channel.LinkFailed(now, id, err)
}

// PeerLost reports that a peer is not what it was, though it may be connected:
// its process was started again.
func (c *Core) PeerLost(now int64, id link.Peer, cause error) {
	c.now = now
	c.channel.PeerLost(now, id, cause)
}

// Deliver takes a whole frame whose payload is in hand. An error means that
// the peer broke the protocol (P§6).
func (c *Core) Deliver(now int64, id link.Peer, h *wire.Header, payload []byte) error {
	c.now = now
	return c.channel.Deliver(now, id, h, payload)
}

// Place returns where the payload of h goes (channel.Room.Place).
func (c *Core) Place(now int64, id link.Peer, h *wire.Header) (link.Ref, error) {
	c.now = now
	return c.channel.Place(now, id, h)
}

// Placed reports that the payload of the frame last placed is complete.
func (c *Core) Placed(now int64, id link.Peer) error {
	c.now = now
	return c.channel.Placed(now, id)
}

// Delivered reports that the frames to a peer up to number seq have come.
func (c *Core) Delivered(now int64, id link.Peer, seq uint64) {
	c.now = now
	c.channel.Delivered(now, id, seq)
}

// Flush posts what the events of this turn have queued. It returns true when
// there is more to post at once.
func (c *Core) Flush(now int64, to Poster) (more bool) {
	c.now = now
	return c.channel.Flush(now, to)
}

// Tick does what time alone brings about, and returns when it wants to be called again; 0: no
// timer runs.
func (c *Core) Tick(now int64) (next int64) {
	c.at(now)
	return c.channel.Tick(now, c.tickLeft())
}

// Doze is to be asked before every sleep (channel.Room.Doze).
func (c *Core) Doze() (again bool) { return c.channel.Doze() }

// Polled reports that there is memory that only a poll tells about: a sleep must not be long.
func (c *Core) Polled() bool {
	if c.channel.Polled() {
		return true
	}
	for _, id := range c.polled { // a read's end is told by its link
		if r := c.recvs.Get(id); r != nil && r.offered && !c.peerOf(r.pattern.Source).Caps().Notify {
			return true
		}
	}
	return false
}

// upper is the core, as the room of the streams calls it.
type upper struct{ c *Core }

var _ channel.Handler = upper{}

func (u upper) Frame(id link.Peer, h *wire.Header, payload []byte) error {
	return u.c.deliver(&u.c.peers[id], h, payload)
}

func (u upper) Destination(id link.Peer, h *wire.Header) (link.Ref, error) {
	return u.c.destination(&u.c.peers[id], h)
}

func (u upper) Placed(id link.Peer, h *wire.Header, at link.Ref) error {
	return u.c.placed(&u.c.peers[id], h, at)
}

// Released carries out what the acknowledgement of a frame brings about.
func (u upper) Released(id link.Peer, a channel.Release, f *link.Frame) {
	c, p := u.c, &u.c.peers[id]
	switch a.Kind {
	case afterComplete:
		c.ranks.Finish(a.Session, uint32(a.ID), c.taken(p, f))
	case afterCopy:
		c.copies.put(f.Payload)
	case afterChunk:
		c.chunkSent(a.ID, f)
	case afterOrigin:
		c.onesided.Released(id, onesided.ReleaseAccess, a.ID)
	case afterGot:
		c.onesided.Released(id, onesided.ReleaseGet, a.ID)
	case afterColl:
		c.collectives.Done(a.ID, c.taken(p, f))
	}
	if a.Hold {
		c.ranks.Unhold(a.Session)
	}
}

// Dropped does so for a peer that is dead. What the end of a session or of an access does is
// not done here (Ended).
func (u upper) Dropped(id link.Peer, a channel.Release, f *link.Frame) {
	c, p := u.c, &u.c.peers[id]
	switch a.Kind {
	case afterCopy:
		c.copies.put(f.Payload)
	case afterComplete:
		c.ranks.Finish(a.Session, uint32(a.ID), c.job.Lost(p.ID()))
	case afterColl:
		c.collectives.Done(a.ID, c.job.Lost(p.ID()))
	case afterOrigin:
		c.onesided.End(a.ID, c.job.Lost(p.ID()))
	}
	if a.Hold {
		c.ranks.Unhold(a.Session)
	}
}

func (u upper) Ended(id link.Peer) {
	p := &u.c.peers[id]
	u.c.dropStreams(p)
	u.c.onesided.PeerLost(id, u.c.job.Lost(id))
}

func (u upper) Feed(id link.Peer, t channel.Transfer) (more bool) {
	switch t.Kind {
	case transferSend:
		return u.c.feedSend(&u.c.peers[id], t.ID)
	case transferAccess:
		return u.c.onesided.Feed(id, onesided.Turn{ID: t.ID})
	case transferGot:
		return u.c.onesided.Feed(id, onesided.Turn{Get: true, ID: t.ID})
	case transferRetract:
		return u.c.feedRetract(&u.c.peers[id], t.ID)
	}
	return false
}

func (u upper) Announce(id link.Peer) { u.c.tellAgain(&u.c.peers[id]) }

func (u upper) Up(id link.Peer) { u.c.peerUp(&u.c.peers[id]) }

func (u upper) Greeted(id link.Peer, h *wire.Header) {
	p := &u.c.peers[id]
	p.renews = h.A&wire.FeatureAgain != 0
	u.c.checkAgain(p)
}

func (u upper) Leaving(id link.Peer, h *wire.Header) { u.c.noteTook(&u.c.peers[id], h) }

func (u upper) Down(id link.Peer, err error) (again bool) { return u.c.peerDown(&u.c.peers[id], err) }

func (u upper) Lost(id link.Peer, cause error) { u.c.peerDied(&u.c.peers[id], cause) }

func (u upper) Rejects(id link.Peer) bool { return u.c.fail != nil || u.c.peers[id].loss != nil }

func (u upper) Reject(id link.Peer) {
	p, f := &u.c.peers[id], u.c.fail
	if f == nil {
		f = p.loss
	}
	u.c.emitAbort(p, f)
}

func (u upper) Rejected(link.Peer) { u.c.startSweep() } // of what was asked for meanwhile

func (u upper) WriteRing(id link.Peer, number uint64, src link.Ref, dst link.Key, notify uint64) error {
	op, token := u.c.remotes.Alloc()
	*op = remoteOp{kind: remoteRing, id: number}
	err := u.c.ports.Write(id, token, src, dst, notify)
	if err != nil {
		u.c.remotes.Release(token)
	}
	return err
}

func isProtocol(err error) bool { return errors.Is(err, link.ErrProtocol) }

// peerUp says what a peer has to know before all else.
func (c *Core) peerUp(p *peer) {
	if c.fail != nil {
		c.tell(p, c.fail) // before anything else that follows from it
	}
	if p.genTold != c.gen {
		c.tellAgain(p)
	}
	if c.left && p.byeSeq == 0 {
		c.emitBye(p)
	} else if !c.left && c.parting.tellAt == 0 {
		c.tellLeft(p)
	}
}

// peerDown decides what the end of a connection means. It reports whether there is to be
// another one.
func (c *Core) peerDown(p *peer, err error) (again bool) {
	c.divert(p)
	if isProtocol(err) {
		c.peerDied(p, err)
		return false
	}
	if p.parted() && c.orphans == 0 {
		c.channel.Rest(p.Peer)
		if c.fail != nil {
			c.dropStreams(p) // the rest of them goes and comes no more
			c.onesided.Drop(p.ID(), c.job.Lost(p.ID()))
		}
		c.startSweep() // does it owe anything?
		return false
	}
	if p.told { // and has closed: it wants nothing more of this sidecar
		c.peerDied(p, err)
		return false
	}
	return true
}
