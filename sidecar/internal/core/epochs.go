package core

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/epoch"
)

// Epochs of windows: post-start-complete-wait (P§5.6). Post and Complete are frames
// among the accesses of their rank, so that what came before them is done at their
// target; Start and Wait are requests that wait for one.

// awaited is what an operation waits for, if it is one of those.
func awaited(op shm.Op) (kind epoch.Kind, ok bool) {
	switch op {
	case shm.OpStart:
		return epoch.Post, true
	case shm.OpWait:
		return epoch.Complete, true
	}
	return 0, false
}

// await ends a request when its target has told what it waits for.
func (c *Core) await(o *origin, id uint64, kind epoch.Kind) {
	w := c.window(o.context, o.rank)
	p := c.peerOf(o.target)
	o.emitted, o.waits = true, 1
	if w == nil {
		c.endOrigin(id, shm.StatusInvalid)
		return
	}
	switch answer := w.tokens.Await(kind, o.target, id); {
	case answer == epoch.Taken:
		c.endOrigin(id, shm.StatusOK)
	case answer == epoch.Refused:
		c.endOrigin(id, shm.StatusUnsupported)
	case p.state == peerDead || c.hasLeft(o.target):
		c.endOrigin(id, c.lostRank(o.target))
	default:
		c.reach(p) // or nobody would notice its end
	}
}

// unawait takes a request that ends out of its window's line.
func (c *Core) unawait(o *origin, id uint64) {
	if kind, ok := awaited(o.op); ok {
		if w := c.window(o.context, o.rank); w != nil {
			w.tokens.Cancel(kind, o.target, id)
		}
	}
}

// tellEpoch emits what a rank tells another; false: its accesses there have not ended.
// Complete is behind them all: frames are carried out in order, and what is remote, or
// read, has ended.
func (c *Core) tellEpoch(p *peer, o *origin, id uint64) bool {
	t := wire.Post
	if o.op == shm.OpComplete {
		t = wire.Complete
		if use := c.usesOf(p, o.rank); use != nil && use.remote+use.gets > 0 {
			return false
		}
	}
	f, _ := c.emit(p, t)
	f.Head.Context, f.Head.Src, f.Head.Dst = o.context, o.rank, o.target
	c.endOrigin(id, shm.StatusOK)
	return true
}

// onEpoch takes it. Of a window that is not there nobody waits for anything.
func (c *Core) onEpoch(h *wire.Header, kind epoch.Kind) {
	if w := c.window(h.Context, h.Dst); w != nil {
		if id, ok := w.tokens.Come(kind, h.Src); ok {
			c.endOrigin(id, shm.StatusOK)
		}
	}
}
