package core

import "github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"

// after is what is done when a frame is acknowledged.
type after = channel.Release

// Kinds of it.
const (
	afterNothing  = channel.ReleaseNothing
	afterComplete = channel.ReleaseUser + iota // OpDone for request id
	afterCopy                                  // give the eager copy back to the pool
	afterChunk                                 // staged chunk of send id is off: OpStaged, maybe OpDone
	afterColl                                  // a step of collective id is done

	// The peer must have dealt with these.
	afterOrigin = channel.ReleaseTaken | channel.ReleaseKind(iota) // one-sided operation id has reached its target
	afterGot                                                       // a get of the peer is answered
)
