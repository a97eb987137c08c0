package p2p

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Kinds of transfers. Those of the room's user follow TransferLast.
const (
	transferSend    channel.TransferKind = iota // Data frames of a send that was pulled
	transferRetract                             // a cancel that waits, of a send
	TransferLast    = transferRetract
)

// Feed emits the next frame of a transfer. more reports whether there are more of them.
func (tx *sender) Feed(id link.Peer, t channel.Transfer) (more bool) {
	p := &tx.peers[id]
	if t.Kind == transferRetract {
		return tx.feedRetract(p, t.ID)
	}
	return tx.feedSend(p, t.ID)
}

// startTransfer puts a send among its peer's transfers if it has something to send.
func (tx *sender) startTransfer(p *peer, id uint64, st *send) {
	if st.flowing || !st.move.Open() {
		return
	}
	if st.staged && st.chunks.unsent() == 0 {
		tx.requestSendChunks(st)
		return
	}
	st.flowing = true
	tx.channel.Add(p.Peer, st.src, channel.Transfer{Kind: transferSend, ID: id})
}

// feedSend emits the next fragment of a send. It reports whether there are more now.
func (tx *sender) feedSend(p *peer, id uint64) bool {
	st := tx.sends.Get(id)
	if st == nil {
		return false
	}
	st.flowing = tx.emitData(p, id, st)
	return st.flowing
}

// emitData emits the next fragment. It reports whether there are more now.
func (tx *sender) emitData(p *peer, id uint64, st *send) bool {
	if !st.move.Open() {
		return false
	}
	off, n := st.move.Next(p.Fragment())
	if st.staged {
		return tx.emitChunk(p, id, st, n)
	}
	f, a := tx.channel.Emit(p.Peer, wire.Data)
	f.Head.A, f.Head.B, f.Head.Length = st.move.Remote, off, uint32(n)
	if st.held {
		f.Payload = st.payload.Slice(off, n)
		*a = after{Session: st.owner.session, Hold: true}
		tx.ranks.Hold(st.owner.session)
	} else {
		copy(f.Inline[:], st.inline[off:off+n])
	}
	p.Out().Charge(f.Payload.Len)
	st.move.Advance(n)
	return st.move.Open()
}
