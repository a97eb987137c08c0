package core

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
func (c *Core) viewOf(p *peer, context, rank uint32) *view {
	id, ok := p.views.ids[viewKey{context, rank}]
	if !ok {
		return nil
	}
	return c.views.Get(id)
}

// usesOf is what a rank has under way at p; nil: it never had anything.
func (c *Core) usesOf(p *peer, rank uint32) *use {
	if i := c.endpoints[rank].index; i < len(p.views.uses) {
		return &p.views.uses[i]
	}
	return nil
}

// useOf is usesOf for who begins something.
func (c *Core) useOf(p *peer, rank uint32) *use {
	i := c.endpoints[rank].index
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
func (c *Core) reachFor(p *peer, o *origin, id uint64) reached {
	if p.self || o.framed || o.sent > 0 || o.total == 0 || p.state != peerReady || !p.caps.Register {
		return reachNot
	}
	if o.op == shm.OpPut && (!p.caps.Write || o.total <= putMin) || o.op == shm.OpGet && !p.caps.Read {
		return reachNot
	}
	x := &p.views
	v := c.viewOf(p, o.context, o.target)
	if v == nil {
		c.askForView(p, o)
		return reachNot
	}
	key, ok := v.Reach(o.offset, o.total)
	if !ok {
		return reachNot
	}
	if x.under >= reachWindow {
		return reachFull
	}
	token := c.remote(remoteAccess, o.owner.session, id)
	op := c.remotes.Get(token)
	op.other, op.rank = x.ids[v.key], o.rank
	var err error
	if o.op == shm.OpPut {
		err = c.ports.Write(p.id, token, o.buf, key, 0)
	} else {
		err = c.ports.Read(p.id, token, o.buf, key)
	}
	if err != nil {
		c.cancelRemote(token)
		c.stats.Unregistered++
		return reachNot
	}
	v.Started()
	x.under++
	c.useOf(p, o.rank).remote++
	return reachStarted
}

// askForView asks for a window. Until the answer has come it is accessed by frames.
func (c *Core) askForView(p *peer, o *origin) {
	x := &p.views
	if x.asked >= exposeWindow || o.target == shm.AnySource {
		return
	}
	if x.ids == nil {
		x.ids = map[viewKey]uint64{}
	}
	v, id := c.views.Alloc()
	v.key = viewKey{o.context, o.target}
	x.ids[v.key] = id
	x.asked++
	for _, e := range c.hosted { // what they did before is not known
		v.Spoke(e.index, max(p.out.last, 1))
	}
	f, _ := c.emit(p, wire.Expose)
	f.Head.Context, f.Head.Src, f.Head.Dst, f.Head.A = o.context, o.rank, o.target, id
}

// onExposed takes the answer.
func (c *Core) onExposed(p *peer, h *wire.Header, payload []byte) error {
	var body wire.ExposedBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	v, err := c.viewIn(p, h)
	if err != nil {
		return err
	}
	if err := v.Told(link.Key{Key: body.Key, Addr: body.Addr}, body.Len); err != nil {
		return err
	}
	if p.views.asked--; h.B == 1 { // there is none: who accesses it is told so
		c.forgetView(p, h.A, v)
	}
	return nil
}

// viewIn finds the view of p's that a frame names.
func (c *Core) viewIn(p *peer, h *wire.Header) (*view, error) {
	v := c.views.Get(h.A)
	if v == nil || c.peerOf(v.key.rank) != p {
		return nil, fmt.Errorf("%w: %v of a window that nobody asked for", link.ErrProtocol, h.Type)
	}
	return v, nil
}

// onConceal takes the news that a window has ended: nothing new is started there,
// and when what is under way has ended its side is told.
func (c *Core) onConceal(p *peer, h *wire.Header) error {
	v, err := c.viewIn(p, h)
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
		c.tellConcealed(p, h.A, v)
	}
	return nil
}

func (c *Core) tellConcealed(p *peer, id uint64, v *view) {
	if !c.over(p) {
		f := c.answer(p, wire.Concealed)
		f.Head.A = v.exposure
	}
	c.views.Release(id)
}

func (c *Core) forgetView(p *peer, id uint64, v *view) {
	if p.views.ids[v.key] == id {
		delete(p.views.ids, v.key)
	}
	c.views.Release(id)
}

// reachEnded takes the end of a remote access. One that has failed is done again by
// frames, before whatever its rank has said since: a flush means it, too.
func (c *Core) reachEnded(p *peer, op *remoteOp, err error) {
	p.views.under--
	c.useOf(p, op.rank).remote--
	if v := c.views.Get(op.other); v != nil && v.Ended(err) {
		c.tellConcealed(p, op.other, v)
	}
	if !p.streams.Empty() {
		c.touch(p)
	}
	o := c.origins.Get(op.id)
	switch {
	case o == nil: // its session has ended
	case err == nil && o.op == shm.OpPut:
		c.stats.RemotePut.Add(o.total)
		c.endOrigin(op.id, shm.StatusOK)
	case err == nil:
		c.stats.RemoteGet.Add(o.total)
		c.endOrigin(op.id, shm.StatusOK)
	case c.over(p):
		c.endOrigin(op.id, c.lost(p))
	default:
		o.framed = true
		c.accessFirst(p, o, op.id)
	}
}

// spoke notes that a rank accesses a window of p by the frame that comes next.
func (c *Core) spoke(p *peer, o *origin) {
	if v := c.viewOf(p, o.context, o.target); v != nil {
		v.Spoke(c.endpoints[o.rank].index, p.out.last+1)
	}
}

// quiet reports that a flush of a rank at one window needs no frame: all that it did
// there was done remotely, and has ended.
func (c *Core) quiet(p *peer, o *origin) bool {
	v := c.viewOf(p, o.context, o.target)
	return v != nil && v.Quiet(c.endpoints[o.rank].index)
}

// flushed notes the answer to a flush of one window.
func (c *Core) flushed(p *peer, o *origin) {
	if v := c.viewOf(p, o.context, o.target); v != nil {
		v.Flushed(c.endpoints[o.rank].index, o.sent)
	}
}

// dropViews forgets the windows of a dead peer. Operations under way end by
// themselves.
func (c *Core) dropViews(p *peer) {
	for _, id := range p.views.ids {
		c.views.Release(id)
	}
	p.views.ids, p.views.asked = nil, 0
}
