package onesided

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// servedGet is a get of a peer that is being answered.
type servedGet struct {
	peer    link.Peer
	request uint64
	mem     link.Ref
	sent    uint64
	session ranks.SessionID // whose memory is held
}

// GetWindow bounds the gets of one sidecar that a peer has not answered completely: each is
// a record there (PROTOCOL.md §5.6).
const GetWindow = 256

// onGet starts the answer to a get.
func (r *Room) onGet(p *peer, h *wire.Header) error {
	if h.B == 0 || p.served >= GetWindow {
		return fmt.Errorf("%w: get of %d bytes with %d others open, want at least 1 byte and fewer than %d", link.ErrProtocol, h.B, p.served, GetWindow)
	}
	ref, w := r.exposedPart(p, h, h.B)
	if w == nil {
		r.answerFlush(p.id, h.A, shm.StatusInvalid)
		return nil
	}
	r.stats.OneSided.Add(h.B)
	g, id := r.servedGets.Alloc()
	*g = servedGet{peer: p.id, request: h.A, mem: ref, session: w.session}
	r.sessions.Hold(g.session)
	p.served++
	r.channel.Queue(p.id, h.Src, Turn{Get: true, ID: id})
	return nil
}

// feedGet emits the next fragment of an answer; false: it was the last.
func (r *Room) feedGet(p *peer, id uint64) bool {
	g := r.servedGets.Get(id)
	if g == nil {
		return false
	}
	n := min(r.fragment(p), g.mem.Len-g.sent)
	// The last frame takes over the hold of the get, and its acknowledgement ends the get.
	m, request, sent, last := Payload{Memory: g.mem.Slice(g.sent, n), Session: g.session}, g.request, g.sent, g.sent+n == g.mem.Len
	if last {
		m.Release = ReleaseGet
	} else {
		r.sessions.Hold(g.session)
	}
	f := r.channel.EmitFrom(p.id, wire.Got, m)
	f.Head.A, f.Head.B, f.Head.Length = request, sent, uint32(n)
	g.sent += n
	if last {
		r.servedGets.Release(id)
	}
	return !last
}

// dropServedGets frees the gets of a peer that is lost.
func (r *Room) dropServedGets(p *peer) {
	r.servedGets.Each(func(id uint64, g *servedGet) {
		if g.peer == p.id {
			r.sessions.Unhold(g.session)
			r.servedGets.Release(id)
		}
	})
}
