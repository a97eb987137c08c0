package onesided

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/expose"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Puts and gets of windows by remote operations (P§5.6), at the side that starts
// them. Package expose says which windows may be reached so.

// Bounds of what is done remotely at one peer. A put of up to putMin bytes leaves its
// rank's memory with a frame at once, and many of them go together: 32 of 64 bytes and
// a flush took 0.17 s as frames and 0.41 s as writes between two emulated machines
// (TestWindows, docs/rdma.md). From there on, up to where memory is registered, writes
// through the link's registered slots take half to two thirds of that.
const (
	reachWindow  = 64             // operations under way: what comes next waits with its rank
	exposeWindow = 256            // windows that were asked for and are not answered
	putMin       = link.InlineMax // larger puts are worth it; others leave their rank's memory with a frame at once
)

// view is a window of a peer's rank, as its accesses see it.
type view struct {
	expose.View
	key      viewKey
	exposure uint64 // of the target, that Concealed names
}

type viewKey struct{ context, rank uint32 }

// views are the windows of one peer that were asked for.
type views struct {
	ids   map[viewKey]uint64
	asked int   // not answered
	under int   // operations under way
	uses  []use // by rank of this sidecar
}

// use is what a rank has under way at a peer.
type use struct {
	remote int // operations
	gets   int // by frames, that are not answered wholly
}

// viewOf finds what is known of a window; nil: nothing.
func (r *Room) viewOf(p *peer, context, rank uint32) *view {
	id, ok := p.views.ids[viewKey{context, rank}]
	if !ok {
		return nil
	}
	return r.views.Get(id)
}

// usesOf is what a rank has under way at p; nil: it never had anything.
func (r *Room) usesOf(p *peer, rank uint32) *use {
	if i := r.hosts[rank].index; i < len(p.views.uses) {
		return &p.views.uses[i]
	}
	return nil
}

// useOf is usesOf for who begins something.
func (r *Room) useOf(p *peer, rank uint32) *use {
	i := r.hosts[rank].index
	for len(p.views.uses) <= i {
		p.views.uses = append(p.views.uses, use{})
	}
	return &p.views.uses[i]
}

// reached is what has come of the wish to do an access remotely.
type reached uint8

const (
	reachNot     reached = iota // it goes by frames
	reachStarted                // it is under way
	reachFull                   // it has to wait
)

// reachFor starts a put or get as a remote operation where that is possible.
func (r *Room) reachFor(p *peer, o *origin, id uint64, is Standing) reached {
	if p.id == r.cfg.Self || o.framed || o.sent > 0 || o.total == 0 || is&Ready == 0 {
		return reachNot
	}
	caps := r.channel.Caps(p.id)
	if !caps.Register || o.op == shm.OpPut && (!caps.Write || o.total <= putMin) || o.op == shm.OpGet && !caps.Read {
		return reachNot
	}
	x := &p.views
	v := r.viewOf(p, o.context, o.target)
	if v == nil {
		r.askForView(p, o)
		return reachNot
	}
	key, ok := v.Reach(o.offset, o.total)
	if !ok {
		return reachNot
	}
	if x.under >= reachWindow {
		return reachFull
	}
	done := Accessed{ID: id, View: x.ids[v.key], Rank: o.rank}
	if r.channel.Access(p.id, Access{Write: o.op == shm.OpPut, Session: o.session, Memory: o.buf, Key: key, Done: done}) != nil {
		r.stats.Unregistered++
		return reachNot
	}
	v.Started()
	x.under++
	r.useOf(p, o.rank).remote++
	return reachStarted
}

// askForView asks for a window. Until the answer has come it is accessed by frames.
func (r *Room) askForView(p *peer, o *origin) {
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
	for _, h := range r.hosted { // what they did before is not known
		v.Spoke(h.index, max(f.Head.Seq-1, 1))
	}
	f.Head.Context, f.Head.Src, f.Head.Dst, f.Head.A = o.context, o.rank, o.target, id
}

// onExposed takes the answer.
func (r *Room) onExposed(p *peer, h *wire.Header, payload []byte) error {
	var body wire.ExposedBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	v, err := r.viewIn(p, h)
	if err != nil {
		return err
	}
	if err := v.Told(link.Key{Key: body.Key, Addr: body.Addr}, body.Len); err != nil {
		return err
	}
	if p.views.asked--; h.B == 1 { // there is none: who accesses it is told so
		r.forgetView(p, h.A, v)
	}
	return nil
}

// viewIn finds the view of p's that a frame names.
func (r *Room) viewIn(p *peer, h *wire.Header) (*view, error) {
	v := r.views.Get(h.A)
	if v == nil || r.podOf(v.key.rank) != p.id {
		return nil, fmt.Errorf("%w: %v of a window that was not requested", link.ErrProtocol, h.Type)
	}
	return v, nil
}

// onConceal takes the news that a window has ended: nothing new is started there,
// and when what is under way has ended its side is told.
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
	if p.views.ids[v.key] == h.A { // the next window of that number is another
		delete(p.views.ids, v.key)
	}
	if over {
		r.tellConcealed(p, h.A, v)
	}
	return nil
}

func (r *Room) tellConcealed(p *peer, id uint64, v *view) {
	if r.channel.Standing(p.id)&Over == 0 {
		f := r.channel.Answer(p.id, wire.Concealed)
		f.Head.A = v.exposure
	}
	r.views.Release(id)
}

func (r *Room) forgetView(p *peer, id uint64, v *view) {
	if p.views.ids[v.key] == id {
		delete(p.views.ids, v.key)
	}
	r.views.Release(id)
}

// Accessed takes the end of a remote access. One that has failed is done again by
// frames, before whatever its rank has said since: a flush means it, too.
func (r *Room) Accessed(from link.Peer, done Accessed, err error) {
	p := r.peer(from)
	p.views.under--
	r.useOf(p, done.Rank).remote--
	if v := r.views.Get(done.View); v != nil && v.Ended(err) {
		r.tellConcealed(p, done.View, v)
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
	case r.channel.Standing(p.id)&Over != 0:
		r.End(done.ID, r.job.Lost(p.id))
	default:
		o.framed = true
		r.accessFirst(p, o, done.ID)
	}
}

// spoke notes that a rank accesses a window of p by the frame seq.
func (r *Room) spoke(p *peer, o *origin, seq uint64) {
	if v := r.viewOf(p, o.context, o.target); v != nil {
		v.Spoke(r.hosts[o.rank].index, seq)
	}
}

// quiet reports that a flush of a rank at one window needs no frame: all that it did
// there was done remotely, and has ended.
func (r *Room) quiet(p *peer, o *origin) bool {
	v := r.viewOf(p, o.context, o.target)
	return v != nil && v.Quiet(r.hosts[o.rank].index)
}

// flushed notes the answer to a flush of one window.
func (r *Room) flushed(p *peer, o *origin) {
	if v := r.viewOf(p, o.context, o.target); v != nil {
		v.Flushed(r.hosts[o.rank].index, o.sent)
	}
}

// dropViews forgets the windows of a dead peer. Operations under way end by
// themselves.
func (r *Room) dropViews(p *peer) {
	for _, id := range p.views.ids {
		r.views.Release(id)
	}
	p.views.ids, p.views.asked = nil, 0
}
