package core

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
)

// What Limits.AheadBytes has to keep busy until the next turn is a connection.
// Within the sidecar there is nothing to keep busy, and fragments are shorter.
const (
	aheadOwn    = 64 << 10
	fragmentOwn = 64 << 10
)

// framesAhead bounds the frames of one-sided operations that wait for the link,
// in the same way: operations beyond it stay with their rank.
const framesAhead = 1024

// ahead reports that as much waits for the link to p as is useful.
func (p *peer) ahead() bool {
	return p.Out().Queued() >= p.most || p.Out().UnpostedFrames() >= framesAhead
}

// entry names something of a peer's streams that takes longer than one step.
type entry struct {
	kind entryKind
	id   uint64
}

type entryKind uint8

const (
	entrySend    entryKind = iota // Data frames of a send that was pulled
	entryAccess                   // one-sided operations of a rank, by rank
	entryGot                      // Got frames of a get that is served here
	entryRetract                  // a cancel that waits, of a send
)

// flow puts a send among its peer's streams while it has something to send.
func (c *Core) flow(p *peer, id uint64, st *send) {
	if st.flowing || !st.move.Open() {
		return
	}
	if st.staged && st.chunks.unsent() == 0 {
		c.askForChunks(st)
		return
	}
	st.flowing = true
	p.streams.Add(st.src, entry{entrySend, id})
	c.channel.Feed(p.Peer)
}

// feedStreams turns large transfers to p into frames, a fragment for each rank
// in turn, a bounded number of bytes and frames ahead of the link.
func (c *Core) feedStreams(p *peer) {
	// Entries that can do nothing now end their turn without a frame: one
	// round of those is enough.
	for idle := 0; !p.streams.Empty() && idle <= p.streams.Owners(); {
		if p.ahead() {
			return
		}
		last := p.Out().Last()
		e := *p.streams.Turn()
		again := false
		switch e.kind {
		case entrySend:
			again = c.feedSend(p, e.id)
		case entryAccess:
			again = c.onesided.Feed(p.ID(), onesided.Turn{ID: e.id})
		case entryGot:
			again = c.onesided.Feed(p.ID(), onesided.Turn{Get: true, ID: e.id})
		case entryRetract:
			again = c.feedRetract(p, e.id)
		}
		p.streams.Pass(again)
		if p.Out().Last() == last && again {
			idle++
		} else {
			idle = 0
		}
	}
}

// feedSend emits the next fragment of a send; false: nothing more for now.
func (c *Core) feedSend(p *peer, id uint64) bool {
	st := c.sends.Get(id)
	if st == nil {
		return false
	}
	st.flowing = c.emitData(p, id, st)
	return st.flowing
}

// emitData emits the next fragment; false: nothing more for now.
func (c *Core) emitData(p *peer, id uint64, st *send) bool {
	if !st.move.Open() {
		return false
	}
	off, n := st.move.Next(p.fragment)
	if st.staged {
		return c.emitChunk(p, id, st, n)
	}
	f, a := c.emit(p, wire.Data)
	f.Head.A, f.Head.B, f.Head.Length = st.move.Remote, off, uint32(n)
	if st.held {
		f.Payload = st.payload.Slice(off, n)
		*a = after{Session: st.owner.session, Hold: true}
		c.ranks.Hold(st.owner.session)
	} else {
		copy(f.Inline[:], st.inline[off:off+n])
	}
	p.Out().Charge(f.Payload.Len)
	st.move.Advance(n)
	return st.move.Open()
}
