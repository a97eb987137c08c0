package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/epoch"
)

// Epochs of windows: post, start, complete, wait (PROTOCOL.md §5.6). Post and Complete are
// frames in the order of their rank's accesses, so that the target has handled all earlier
// accesses when they arrive. Start waits for a Post, and Wait for a Complete.

// awaitedKind returns the frame that an operation waits for; false: it waits for none.
func awaitedKind(op shm.Op) (kind epoch.Kind, ok bool) {
	switch op {
	case shm.OpStart:
		return epoch.Post, true
	case shm.OpWait:
		return epoch.Complete, true
	}
	return 0, false
}

// await ends a Start or Wait when the frame of its target arrives.
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
	case r.channel.PeerState(p)&Dead != 0 || r.job.HasLeft(o.target):
		r.End(id, r.lostRank(o.target))
	default:
		r.channel.Reach(p) // the loss of the peer is noticed on a connection only
	}
}

// unawait removes a request that ends from its window's tokens.
func (r *Room) unawait(o *origin, id uint64) {
	if kind, ok := awaitedKind(o.op); ok {
		if w := r.window(o.context, o.rank); w != nil {
			w.tokens.Cancel(kind, o.target, id)
		}
	}
}

// emitEpoch emits a Post or Complete; false: remote operations or gets of the rank at this
// peer have not ended, for which Complete waits. Earlier frames are handled before it.
func (r *Room) emitEpoch(p *peer, o *origin, id uint64) bool {
	t := wire.Post
	if o.op == shm.OpComplete {
		t = wire.Complete
		if use := r.useOf(p, o.rank); use != nil && use.remote+use.gets > 0 {
			return false
		}
	}
	f := r.channel.Emit(p.id, t)
	f.Head.Context, f.Head.Src, f.Head.Dst = o.context, o.rank, o.target
	r.End(id, shm.StatusOK)
	return true
}

// onEpoch handles a Post or Complete; if the window does not exist, no rank can wait for it.
func (r *Room) onEpoch(h *wire.Header, kind epoch.Kind) {
	if w := r.window(h.Context, h.Dst); w != nil {
		if id, ok := w.tokens.Add(kind, h.Src); ok {
			r.End(id, shm.StatusOK)
		}
	}
}
