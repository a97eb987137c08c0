package core

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The events of links go to the room channel. The room calls back through upper.

// Poster sends frames to a peer (channel.Poster).
type Poster = channel.Poster

// LinkUp reports a fresh connection to peer.
func (c *Core) LinkUp(now int64, id link.Peer, caps link.Caps) {
	c.now = now
	c.channel.LinkUp(now, id, caps)
}

// LinkDown reports that the connection to peer broke. If the peer broke the protocol, the job fails.
func (c *Core) LinkDown(now int64, id link.Peer, err error) {
	c.at(now)
	c.settleAccounts() // this peer may have sent what was beyond the bound because of another one
	c.channel.LinkDown(now, id, err)
}

// LinkFailed reports that all attempts to connect to peer have failed.
func (c *Core) LinkFailed(now int64, id link.Peer, err error) {
	c.now = now
	c.channel.LinkFailed(now, id, err)
}

// PeerLost reports that the process of a peer was started again, although the peer may be connected.
func (c *Core) PeerLost(now int64, id link.Peer, cause error) {
	c.now = now
	c.channel.PeerLost(now, id, cause)
}

// Deliver handles a whole frame with its payload. An error means that the peer violated the
// protocol (P§6).
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

// Delivered reports that the link has confirmed the frames to a peer up to number seq.
func (c *Core) Delivered(now int64, id link.Peer, seq uint64) {
	c.now = now
	c.channel.Delivered(now, id, seq)
}

// Flush posts the frames that the events of this turn have queued. It reports whether there is
// more to post at once.
func (c *Core) Flush(now int64, to Poster) (more bool) {
	c.now = now
	return c.channel.Flush(now, to)
}

// Tick does the work that depends on time alone. It returns when it has to be called again, or
// 0 if no timer runs.
func (c *Core) Tick(now int64) (next int64) {
	c.at(now)
	return c.channel.Tick(now, c.tickLeft())
}

// PrepareSleep must be called before each sleep (channel.Room.PrepareSleep).
func (c *Core) PrepareSleep() (again bool) { return c.channel.PrepareSleep() }

// Polled reports whether there is memory that has to be polled. A sleep must not be long then.
func (c *Core) Polled() bool {
	return c.channel.Polled() || c.p2p.Polled()
}

// PollMemory polls the memory that peers write without notification: their rings, and the last
// bytes of messages. It returns the number of slots that it has emptied and receives that it has
// ended. The connection of a peer that violates the protocol ends.
func (c *Core) PollMemory(now int64) int {
	c.at(now)
	return c.channel.PollRings() + c.p2p.PollReads()
}

// RemoteDone reports the end of a remote read or write that the core started.
func (c *Core) RemoteDone(now int64, id link.Peer, token uint64, err error) {
	c.at(now)
	if err != nil && c.p2p.Knows(token) && c.over(&c.peers[id]) {
		c.startSweep() // an earlier sweep has left this operation alone
	}
	f, is := c.p2p.RemoteDone(id, token, err)
	switch {
	case !is:
	case f.Ring:
		c.channel.RingWritten(id, f.ID, err)
	default:
		c.onesided.Accessed(id, onesided.Accessed{ID: f.ID, View: f.View, Rank: f.Rank}, err)
		c.ranks.Unhold(f.Session)
	}
}

// RemoteWritten reports a peer's notified write (link.Sink.Written).
func (c *Core) RemoteWritten(now int64, id link.Peer, notify uint64) error {
	c.at(now)
	if notify>>32 == 0 { // no request has such a number
		return c.channel.Notified(id, notify)
	}
	return c.p2p.RemoteWritten(id, notify)
}

// upper is the core as the room channel calls it.
type upper struct{ c *Core }

var _ channel.Handler = upper{}

// Frame hands a frame in order to the room that it concerns.
func (u upper) Frame(id link.Peer, h *wire.Header, payload []byte) error {
	c, p := u.c, &u.c.peers[id]
	if p.gen != c.gen {
		if is, err := c.foreign(p, h); is {
			return err
		}
	}
	switch h.Type {
	case wire.Eager:
		if err := c.silent(p, h); err != nil {
			return err
		}
		if !p.Self() && !c.left && c.hasGone(h.Dst) {
			c.emitLeft(p) // before the acknowledgement of this frame: its sender learns that it arrived too late
		}
		return c.p2p.Eager(id, h, payload)
	case wire.RTS:
		if err := c.silent(p, h); err != nil {
			return err
		}
		return c.p2p.Frame(id, h, payload)
	case wire.Pull, wire.Fin, wire.Matched, wire.Written, wire.Retract, wire.Retracted, wire.Ended,
		wire.Ready, wire.Taken, wire.Withdraw, wire.Withdrawn:
		return c.p2p.Frame(id, h, payload)
	case wire.Abort:
		return c.onAbort(p, h, payload)
	case wire.Left:
		return c.onLeft(p, h)
	case wire.Bye:
		c.onBye(p)
		return nil
	case wire.Again:
		return c.onAgain(p, h)
	case wire.Place:
		return nil // sent by an earlier release, which chooses processors by it
	}
	return c.onesided.Frame(id, h, payload)
}

func (u upper) Destination(id link.Peer, h *wire.Header) (link.Ref, error) {
	return u.c.destination(&u.c.peers[id], h)
}

func (u upper) Placed(id link.Peer, h *wire.Header, at link.Ref) error {
	if h.Type == wire.Eager || h.Type == wire.Data {
		return u.c.p2p.Placed(id, h, at)
	}
	u.c.oneSidedPlaced(&u.c.peers[id], h, at)
	return nil
}

// Released does what follows from the acknowledgement of a frame.
func (u upper) Released(id link.Peer, a channel.Release, f *link.Frame) {
	switch a.Kind {
	case afterOrigin:
		u.c.onesided.Released(id, onesided.ReleaseAccess, a.ID)
	case afterGot:
		u.c.onesided.Released(id, onesided.ReleaseGet, a.ID)
	default:
		u.c.p2p.Released(id, a, f)
	}
	if a.Hold {
		u.c.ranks.Unhold(a.Session)
	}
}

// Dropped ends what Released would end, for a frame to a peer that is dead. Ended does the
// rest.
func (u upper) Dropped(id link.Peer, a channel.Release, f *link.Frame) {
	if a.Kind == afterOrigin {
		u.c.onesided.End(a.ID, u.c.job.Lost(id))
	} else {
		u.c.p2p.Dropped(id, a, f)
	}
	if a.Hold {
		u.c.ranks.Unhold(a.Session)
	}
}

func (u upper) Ended(id link.Peer) {
	p := &u.c.peers[id]
	u.c.dropStreams(p)
	u.c.onesided.PeerLost(id, u.c.job.Lost(id))
}

func (u upper) Feed(id link.Peer, t channel.Transfer) (more bool) {
	switch t.Kind {
	case transferAccess:
		return u.c.onesided.Feed(id, onesided.Turn{ID: t.ID})
	case transferGot:
		return u.c.onesided.Feed(id, onesided.Turn{Get: true, ID: t.ID})
	}
	return u.c.p2p.Feed(id, t)
}

func (u upper) Announce(id link.Peer) { u.c.emitAgain(&u.c.peers[id]) }

func (u upper) Up(id link.Peer) { u.c.peerUp(&u.c.peers[id]) }

func (u upper) Greeted(id link.Peer, h *wire.Header) {
	p := &u.c.peers[id]
	p.renews = h.A&wire.FeatureAgain != 0
	u.c.collectives.Greeted(id, h.B)
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

func (u upper) Rejected(link.Peer) { u.c.startSweep() } // ends requests to it that were made meanwhile

func (u upper) WriteRing(id link.Peer, number uint64, src link.Ref, dst link.Key, notify uint64) error {
	return u.c.p2p.WriteRing(id, number, src, dst, notify)
}

func isProtocol(err error) bool { return errors.Is(err, link.ErrProtocol) }

// Kinds of transfers of one-sided operations.
const (
	transferAccess = p2p.TransferLast + 1 + iota // operations of a rank, by rank
	transferGot                                  // Got frames of a get that is served here
)

// Releases of the frames of one-sided operations. They wait until the peer has handled the
// frame.
const (
	afterOrigin = channel.ReleaseTaken | p2p.ReleaseLast + 1 + iota // operation id has reached its target
	afterGot                                                        // a get of the peer is answered
)

// hasGone reports whether a rank of this sidecar has left this generation.
func (c *Core) hasGone(rank uint32) bool {
	return int(rank) < len(c.endpoints) && c.endpoints[rank] != nil && c.endpoints[rank].gone
}

// destination returns where the payload of the next frame goes.
func (c *Core) destination(p *peer, h *wire.Header) (link.Ref, error) {
	if p.gen != c.gen {
		if is, err := c.foreign(p, h); is {
			return link.Ref{Region: RegionDiscard, Len: uint64(h.Length)}, err
		}
	}
	switch h.Type {
	case wire.Eager, wire.Data:
		if h.Type == wire.Eager {
			if err := c.silent(p, h); err != nil {
				return link.Ref{}, err
			}
		}
		return c.p2p.Destination(p.ID(), h)
	case wire.Got, wire.Put, wire.Acc:
		return c.placeOneSided(p, h)
	}
	return link.Ref{}, fmt.Errorf("%w: %v with a payload of %d bytes", link.ErrProtocol, h.Type, h.Length)
}

// peerUp emits the frames that a peer needs before any other frame.
func (c *Core) peerUp(p *peer) {
	if c.fail != nil {
		c.emitAbortOnce(p, c.fail) // before the frames that follow from the failure
	}
	if p.genTold != c.gen {
		c.emitAgain(p)
	}
	if c.left && p.byeSeq == 0 {
		c.emitBye(p)
	} else if !c.left && c.parting.tellAt == 0 {
		c.emitLeft(p)
	}
}

// peerDown handles the end of a connection. It reports whether another one is to be made.
func (c *Core) peerDown(p *peer, err error) (again bool) {
	c.divert(p)
	if isProtocol(err) {
		c.peerDied(p, err)
		return false
	}
	if p.parted() && c.p2p.Orphans() == 0 {
		c.channel.Rest(p.Peer)
		if c.fail != nil {
			c.dropStreams(p) // their remaining payloads are neither sent nor received
			c.onesided.Drop(p.ID(), c.job.Lost(p.ID()))
		}
		c.startSweep() // requests that wait for it have to be looked at
		return false
	}
	if p.told { // and has closed the connection: it needs nothing more of this sidecar
		c.peerDied(p, err)
		return false
	}
	return true
}
