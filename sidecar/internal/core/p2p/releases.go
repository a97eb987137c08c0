package p2p

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// after is the action when a frame is acknowledged.
type after = channel.Release

// Kinds of releases. Those of the room's user follow ReleaseLast.
const (
	afterNothing  = channel.ReleaseNothing
	afterComplete = channel.ReleaseUser + iota - 1 // OpDone for request id
	afterCopy                                      // give the eager copy back to the pool
	afterChunk                                     // staged chunk of send id is off: OpStaged, maybe OpDone
	afterColl                                      // a step of collective id is done
	ReleaseLast   = afterColl
)

// Released does what follows from the acknowledgement of a frame.
func (tx *sender) Released(id link.Peer, a channel.Release, f *link.Frame) {
	p := &tx.peers[id]
	switch a.Kind {
	case afterComplete:
		tx.ranks.Finish(a.Session, uint32(a.ID), tx.taken(p, f))
	case afterCopy:
		tx.copies.put(f.Payload)
	case afterChunk:
		tx.chunkSent(a.ID, f)
	case afterColl:
		tx.colls.Done(a.ID, tx.taken(p, f))
	}
}

// Dropped ends what Released would end, for a frame to a peer that is dead. Chunks are given
// back when their send ends.
func (tx *sender) Dropped(id link.Peer, a channel.Release, f *link.Frame) {
	switch a.Kind {
	case afterCopy:
		tx.copies.put(f.Payload)
	case afterComplete:
		tx.ranks.Finish(a.Session, uint32(a.ID), tx.job.Lost(id))
	case afterColl:
		tx.colls.Done(a.ID, tx.job.Lost(id))
	}
}
