package onesided

import (
	"fmt"
	"maps"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/expose"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Puts and gets by remote operations (PROTOCOL.md §5.6), on the origin's side. Package expose
// decides which windows allow them.

// Bounds of the remote operations at one peer. A put of up to putMin bytes goes by a frame:
// it is copied, ends at once, and shares a packet with others. 32 puts of 64 bytes and a
// flush took 0.17 s as frames and 0.41 s as writes between two emulated machines
// (TestWindows, docs/rdma.md). Larger puts, up to the size from which memory is registered,
// take half to two thirds of the time of frames if they are written through the link's
// registered slots.
const (
	reachWindow  = 64             // open operations, of which the link keeps state; further ones wait in their queue
	exposeWindow = 256            // Expose requests without an answer
	putMin       = link.InlineMax // the largest put that always goes by a frame
)

// view is a window of a peer's rank, as the ranks of this sidecar access it.
type view struct {
	expose.View
	key      viewKey
	exposure uint64 // number of the target, which Concealed repeats
}

type viewKey struct{ context, rank uint32 }

// views are the known windows of one peer.
type views struct {
	ids   map[viewKey]uint64
	asked int   // without an answer
	under int   // remote operations that have not ended
	uses  []use // uses by rank of this sidecar
}

// use counts the operations of a rank at a peer that have not ended.
type use struct {
	remote int // remote operations
	gets   int // gets by frames whose answer is not complete
}

// viewOf returns the view of a window; nil: it was not requested.
func (r *Room) viewOf(p *peer, context, rank uint32) *view {
	id, ok := p.views.ids[viewKey{context, rank}]
	if !ok {
		return nil
	}
	return r.views.Get(id)
}

// useOf returns the counters of a rank at p; nil: it has never started an operation there.
func (r *Room) useOf(p *peer, rank uint32) *use {
	if i := r.hosts[rank].index; i < len(p.views.uses) {
		return &p.views.uses[i]
	}
	return nil
}

// ensureUse returns the counters of a rank at p, which it creates if needed.
func (r *Room) ensureUse(p *peer, rank uint32) *use {
	i := r.hosts[rank].index
	for len(p.views.uses) <= i {
		p.views.uses = append(p.views.uses, use{})
	}
	return &p.views.uses[i]
}

// remoteResult is the result of tryRemote.
type remoteResult uint8

const (
	remoteNot     remoteResult = iota // the access goes by frames
	remoteStarted                     // the remote operation is started
	remoteWaits                       // the peer has reachWindow of them
)

// tryRemote starts a put or get as a remote operation if link and window allow it.
func (r *Room) tryRemote(p *peer, o *origin, id uint64, is PeerState) remoteResult {
	if p.id == r.cfg.Self || o.framed || o.sent > 0 || o.total == 0 || is&Ready == 0 {
		return remoteNot
	}
	caps := r.channel.Caps(p.id)
	if !caps.Register || o.op == shm.OpPut && (!caps.Write || o.total <= putMin) || o.op == shm.OpGet && !caps.Read {
		return remoteNot
	}
	x := &p.views
	v := r.viewOf(p, o.context, o.target)
	if v == nil {
		r.requestView(p, o)
		return remoteNot
	}
	key, ok := v.Reach(o.offset, o.total)
	if !ok {
		return remoteNot
	}
	if x.under >= reachWindow {
		return remoteWaits
	}
	done := Accessed{ID: id, View: x.ids[v.key], Rank: o.rank}
	if r.channel.Access(p.id, Access{Write: o.op == shm.OpPut, Session: o.session, Memory: o.buf, Key: key, Done: done}) != nil {
		r.stats.Unregistered++
		return remoteNot
	}
	v.Started()
	x.under++
	r.ensureUse(p, o.rank).remote++
	return remoteStarted
}

// requestView requests a window. Until the answer arrives it is accessed by frames.
func (r *Room) requestView(p *peer, o *origin) {
	x := &p.views
	if x.asked >= exposeWindow || o.target == shm.AnySource {
		return
	}
	if x.ids == nil {
		x.ids = map[viewKey]uint64{}
	}
	v, id := r.views.Alloc()
	v.key = viewKey{o.context, o.target}
	x.ids[v.key] = id
	x.asked++
	f := r.channel.Emit(p.id, wire.Expose)
	for _, h := range r.hosted { // their earlier operations are not known
		v.Accessed(h.index, max(f.Head.Seq-1, 1))
	}
	f.Head.Context, f.Head.Src, f.Head.Dst, f.Head.A = o.context, o.rank, o.target, id
}

// onExposed handles the answer.
func (r *Room) onExposed(p *peer, h *wire.Header, payload []byte) error {
	var body wire.ExposedBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	v, err := r.viewIn(p, h)
	if err != nil {
		return err
	}
	if err := v.Answered(link.Key{Key: body.Key, Addr: body.Addr}, body.Len); err != nil {
		return err
	}
	if p.views.asked--; h.B == 1 { // the window does not exist: frames report that to the rank
		r.releaseView(p, h.A, v)
	}
	return nil
}

// viewIn returns the view of p that a frame names.
func (r *Room) viewIn(p *peer, h *wire.Header) (*view, error) {
	v := r.views.Get(h.A)
	if v == nil || r.podOf(v.key.rank) != p.id {
		return nil, fmt.Errorf("%w: %v of a window that was not requested", link.ErrProtocol, h.Type)
	}
	return v, nil
}

// onConceal handles the end of a window: no remote operation is started any more, and when
// the last one has ended the target is sent a Concealed.
func (r *Room) onConceal(p *peer, h *wire.Header) error {
	v, err := r.viewIn(p, h)
	if err != nil {
		return err
	}
	over, err := v.Conceal()
	if err != nil {
		return err
	}
	v.exposure = h.B
	if p.views.ids[v.key] == h.A { // a newer window may have the number already
		delete(p.views.ids, v.key)
	}
	if over {
		r.answerConcealed(p, h.A, v)
	}
	return nil
}

// answerConcealed emits a Concealed and frees the view.
func (r *Room) answerConcealed(p *peer, id uint64, v *view) {
	if r.channel.PeerState(p.id)&Ended == 0 {
		f := r.channel.Answer(p.id, wire.Concealed)
		f.Head.A = v.exposure
	}
	r.views.Release(id)
}

// releaseView frees the view of a window that does not exist.
func (r *Room) releaseView(p *peer, id uint64, v *view) {
	if p.views.ids[v.key] == id {
		delete(p.views.ids, v.key)
	}
	r.views.Release(id)
}

// Accessed handles the end of a remote operation. If it has failed, it is repeated by frames
// before all later operations of its rank, because a later flush covers it.
func (r *Room) Accessed(from link.Peer, done Accessed, err error) {
	p := r.peer(from)
	p.views.under--
	r.ensureUse(p, done.Rank).remote--
	if v := r.views.Get(done.View); v != nil && v.Ended(err) {
		r.answerConcealed(p, done.View, v)
	}
	r.channel.Wake(p.id)
	o := r.origins.Get(done.ID)
	switch {
	case o == nil: // its session has ended
	case err == nil && o.op == shm.OpPut:
		r.stats.RemotePut.Add(o.total)
		r.End(done.ID, shm.StatusOK)
	case err == nil:
		r.stats.RemoteGet.Add(o.total)
		r.End(done.ID, shm.StatusOK)
	case r.channel.PeerState(p.id)&Ended != 0:
		r.End(done.ID, r.job.Lost(p.id))
	default:
		o.framed = true
		r.accessFirst(p, o, done.ID)
	}
}

// recordFrame records that a rank has accessed a window of p by the frame seq.
func (r *Room) recordFrame(p *peer, o *origin, seq uint64) {
	if v := r.viewOf(p, o.context, o.target); v != nil {
		v.Accessed(r.hosts[o.rank].index, seq)
	}
}

// flushedAlready reports whether a flush of a rank at one window needs no frame: all its
// accesses since the last flush were remote, and have ended.
func (r *Room) flushedAlready(p *peer, o *origin) bool {
	v := r.viewOf(p, o.context, o.target)
	return v != nil && v.Quiet(r.hosts[o.rank].index)
}

// flushed records the answer to a flush of one window.
func (r *Room) flushed(p *peer, o *origin) {
	if v := r.viewOf(p, o.context, o.target); v != nil {
		v.Flushed(r.hosts[o.rank].index, o.sent)
	}
}

// dropViews frees the views of a peer that is lost. Remote operations end by themselves.
func (r *Room) dropViews(p *peer) {
	for _, id := range slices.Sorted(maps.Values(p.views.ids)) {
		r.views.Release(id)
	}
	p.views.ids, p.views.asked = nil, 0
}
