package engine

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The methods below implement core.Ports.

// Bytes returns the memory of a range. The core has checked the range.
func (e *Engine) Bytes(r link.Ref) []byte {
	return e.regions[r.Region][r.Off : r.Off+r.Len : r.Off+r.Len]
}

// Complete publishes d to an application.
func (e *Engine) Complete(id core.SessionID, d *shm.Descriptor) {
	a := e.sessions[id]
	if a == nil || a.closing {
		return
	}
	e.visit(a)
	a.times.Complete(e.now, d)
	if err := a.Complete(d); err != nil {
		e.inbox.postLater(func(e *Engine) { e.expel(a, err) })
	}
}

// Discard gives memory of the pool back to the kernel.
func (e *Engine) Discard(ref link.Ref) { discardMemory(e.Bytes(ref)) }

// Retire reports n silent sends as taken over to the application.
func (e *Engine) Retire(id core.SessionID, n uint64) {
	if a := e.sessions[id]; a != nil {
		e.visit(a)
		a.Retire(n)
	}
}

// Failed stores the reason of the job's failure in the application's segment.
func (e *Engine) Failed(id core.SessionID, text string) {
	if a := e.sessions[id]; a != nil {
		a.SetFailure(text)
	}
}

// Freed unmaps a session's memory, to which nothing refers any more. A session that
// detached by a descriptor is still connected; its socket closes by itself.
func (e *Engine) Freed(id core.SessionID) {
	a := e.sessions[id]
	e.inbox.postLater(func(e *Engine) { e.free(a) })
}

func (e *Engine) free(a *attached) {
	if !a.closing { // the application detached by OpDetach
		e.remove(a)
		if e.byRank[a.Rank] == a { // otherwise its rank has attached again
			a.times.Leave(e.now)
		}
	}
	a.Over()
	e.dropRegions(a)
	e.keepBuffers(a)
	e.sessions[a.id] = nil
	if e.byRank[a.Rank] == a { // otherwise its rank has attached again
		delete(e.byRank, a.Rank)
	}
	if err := a.Free(); err != nil {
		e.cfg.Log.Error("releasing a session's memory", "rank", a.Rank, "cause", err)
	}
}

// Connect requests a connection to a peer; the one to this sidecar itself always exists.
func (e *Engine) Connect(peer link.Peer) {
	if peer == e.cfg.Core.Self {
		e.inbox.postLater(func(e *Engine) { e.core.LinkUp(e.now, peer, e.cfg.Local.Caps()) })
		return
	}
	e.cfg.Dialer.Connect(peer)
}

// Disconnect closes the connection to a peer.
func (e *Engine) Disconnect(peer link.Peer) {
	if peer != e.cfg.Core.Self {
		e.cfg.Dialer.Cancel(peer)
	}
	e.linkTo(peer).Forget(peer)
}

// Note records a protocol event.
func (e *Engine) Note(kind core.NoteKind, peer link.Peer, rank uint32, tag, size, seq uint64) {
	if e.cfg.Record != nil {
		e.cfg.Record.Record(e.now, uint8(kind), int32(peer), rank, tag, size, seq)
	}
	if kind == core.NoteColl {
		if a := e.byRank[rank]; a != nil {
			a.times.Collective(coll.Kind(tag), size)
		}
	}
}

func (e *Engine) linkTo(peer link.Peer) link.Link {
	if peer == e.cfg.Core.Self {
		return e.cfg.Local
	}
	return e.cfg.Remote
}

// Post passes frames to the peer's link (core.Poster).
func (e *Engine) Post(peer link.Peer, frames []*link.Frame) int {
	n := e.linkTo(peer).Post(peer, frames)
	if e.cfg.Trace != nil {
		for _, f := range frames[:n] {
			e.cfg.Trace.Sent(e.now, int32(peer), peer == e.cfg.Core.Self, &f.Head)
		}
	}
	return n
}

// came records a frame whose header has arrived.
func (e *Engine) came(peer link.Peer, h *wire.Header) {
	if e.cfg.Trace != nil {
		e.cfg.Trace.Came(e.now, int32(peer), peer == e.cfg.Core.Self, h)
	}
}

// abilities returns the abilities of the peer's link.
func (e *Engine) abilities(peer link.Peer) *link.Abilities {
	if peer == e.cfg.Core.Self {
		return &e.can[linkLocal]
	}
	return &e.can[linkRemote]
}

// remote returns the remote operations of the peer's link. The core calls only those that
// Caps offers.
func (e *Engine) remote(peer link.Peer) link.Remote { return e.abilities(peer).Remote }

// Register makes memory reachable for a peer.
func (e *Engine) Register(peer link.Peer, ref link.Ref) (link.Key, error) {
	return e.remote(peer).Register(ref)
}

// Expose registers memory of a window.
func (e *Engine) Expose(peer link.Peer, ref link.Ref) (link.Key, error) {
	if expose := e.abilities(peer).Expose; expose != nil {
		return expose(ref)
	}
	return e.Register(peer, ref)
}

// Deregister removes a registration.
func (e *Engine) Deregister(peer link.Peer, key link.Key) {
	if withdraw := e.abilities(peer).Withdraw; withdraw != nil {
		withdraw(peer, key)
	} else {
		e.remote(peer).Deregister(key)
	}
}

// Release ends the use of a registration, which the link may retain.
func (e *Engine) Release(peer link.Peer, key link.Key) {
	if release := e.abilities(peer).Release; release != nil {
		release(key)
	} else {
		e.Deregister(peer, key)
	}
}

// Read starts a remote read.
func (e *Engine) Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error {
	return e.remote(peer).Read(peer, token, dst, src)
}

// Write starts a remote write.
func (e *Engine) Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	return e.remote(peer).Write(peer, token, src, dst, notify)
}

// The methods below implement link.Sink.

// Deliver passes a whole frame to the core.
func (e *Engine) Deliver(peer link.Peer, h *wire.Header, payload []byte) error {
	e.came(peer, h)
	return e.core.Deliver(e.now, peer, h, payload)
}

// Place returns the destination of a payload.
func (e *Engine) Place(peer link.Peer, h *wire.Header) ([]byte, error) {
	e.came(peer, h)
	ref, err := e.core.Place(e.now, peer, h)
	if err != nil {
		return nil, err
	}
	return e.Bytes(ref), nil
}

// Placed reports that a payload is complete.
func (e *Engine) Placed(peer link.Peer) error { return e.core.Placed(e.now, peer) }

// Done reports the completion of a remote operation.
func (e *Engine) Done(peer link.Peer, token uint64, err error) {
	e.core.RemoteDone(e.now, peer, token, err)
}

// Written reports a notified write of a peer.
func (e *Engine) Written(peer link.Peer, notify uint64) {
	if err := e.core.RemoteWritten(e.now, peer, notify); err != nil {
		e.Down(peer, err)
	}
}

// Delivered reports frames that need not be sent again.
func (e *Engine) Delivered(peer link.Peer, seq uint64) { e.core.Delivered(e.now, peer, seq) }

// Down reports the end of a connection.
func (e *Engine) Down(peer link.Peer, err error) {
	if e.core.Parted(peer) {
		e.cfg.Log.Info("peer has left", "peer", peer)
	} else {
		e.cfg.Log.Warn("connection lost", "peer", peer, "cause", err)
	}
	e.core.LinkDown(e.now, peer, err)
}
