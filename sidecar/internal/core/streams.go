package core

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
)

// Kinds of transfers.
const (
	transferSend    channel.TransferKind = iota // Data frames of a send that was pulled
	transferAccess                              // one-sided operations of a rank, by rank
	transferGot                                 // Got frames of a get that is served here
	transferRetract                             // a cancel that waits, of a send
)

// flow puts a send among its peer's transfers while it has something to send.
func (c *Core) flow(p *peer, id uint64, st *send) {
	if st.flowing || !st.move.Open() {
		return
	}
	if st.staged && st.chunks.unsent() == 0 {
		c.askForChunks(st)
		return
	}
	st.flowing = true
	c.channel.Add(p.Peer, st.src, channel.Transfer{Kind: transferSend, ID: id})
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
	off, n := st.move.Next(p.Fragment())
	if st.staged {
		return c.emitChunk(p, id, st, n)
	}
	f, a := c.channel.Emit(p.Peer, wire.Data)
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
