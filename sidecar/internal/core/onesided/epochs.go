package onesided

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
func (r *Room) await(o *origin, id uint64, kind epoch.Kind) {
	w := r.window(o.context, o.rank)
	p := r.podOf(o.target)
	o.emitted, o.waits = true, 1
	if w == nil {
		r.End(id, shm.StatusInvalid)
		return
	}
	switch answer := w.tokens.Await(kind, o.target, id); {
	case answer == epoch.Taken:
		r.End(id, shm.StatusOK)
	case answer == epoch.Refused:
		r.End(id, shm.StatusUnsupported)
	case r.channel.Standing(p)&Dead != 0 || r.job.HasLeft(o.target):
		r.End(id, r.lostRank(o.target))
	default:
		r.channel.Reach(p) // otherwise its end is not noticed
	}
}

// unawait takes a request that ends out of its window's line.
func (r *Room) unawait(o *origin, id uint64) {
	if kind, ok := awaited(o.op); ok {
		if w := r.window(o.context, o.rank); w != nil {
			w.tokens.Cancel(kind, o.target, id)
		}
	}
}

// tellEpoch emits what a rank tells another; false: its accesses there have not ended.
// Complete is behind them all: frames are carried out in order, and what is remote, or
// read, has ended.
func (r *Room) tellEpoch(p *peer, o *origin, id uint64) bool {
	t := wire.Post
	if o.op == shm.OpComplete {
		t = wire.Complete
		if use := r.usesOf(p, o.rank); use != nil && use.remote+use.gets > 0 {
			return false
		}
	}
	f := r.channel.Emit(p.id, t)
	f.Head.Context, f.Head.Src, f.Head.Dst = o.context, o.rank, o.target
	r.End(id, shm.StatusOK)
	return true
}

// onEpoch takes it. Of a window that is not there nobody waits for anything.
func (r *Room) onEpoch(h *wire.Header, kind epoch.Kind) {
	if w := r.window(h.Context, h.Dst); w != nil {
		if id, ok := w.tokens.Come(kind, h.Src); ok {
			r.End(id, shm.StatusOK)
		}
	}
}
