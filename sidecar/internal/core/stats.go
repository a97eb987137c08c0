package core

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// NoteKind is the kind of a protocol event in the flight recorder.
type NoteKind = ranks.NoteKind

// Kinds of notes.
const (
	NotePost   = ranks.NotePost
	NoteArrive = ranks.NoteArrive
	NoteUp     = ranks.NoteUp
	NoteDown   = ranks.NoteDown
	NoteFailed = ranks.NoteFailed
	NoteColl   = ranks.NoteColl
	NoteRecv   = ranks.NoteRecv
)

// Traffic counts messages and their bytes, and Talk is the traffic from a rank to another.
type (
	Traffic = ranks.Traffic
	Talk    = p2p.Talk
)

// Stats are the core's counters since its start; the last group are levels.
type Stats struct {
	Eager, Get, Put, Stream, OneSided, Collective Traffic // by protocol; rendezvous at the side that moves the data

	FramesIn, FramesOut  uint64
	RingFrames           uint64  // frames of FramesOut that were sent by remote write
	RingTaken            uint64  // slots of rings that peers have filled, and that were emptied
	Offers, Offered      uint64  // receives offered to their senders, and messages written to offered receives
	Collisions           uint64  // messages written to offered receives whose end had to be reported by a frame
	RemotePut, RemoteGet Traffic // accesses to windows by remote operation, at the side that has started them
	Exposed              uint64  // windows that were registered for peers
	Expected, Unexpected uint64  // arrivals that found a receive, receives that found a message
	CreditStalls         uint64  // eager messages that had to go by rendezvous
	Widened, Narrowed    uint64  // windows of credit that were widened, and that were narrowed
	Asked                uint64  // peers that were asked for unused credit
	Discards             uint64  // ranges of free memory that the kernel has got back
	Unregistered         uint64  // registrations refused
	RemoteErrors         uint64
	Breaks, Reconnects   uint64
	Sizes                [40]uint64 // messages sent by size: index is the number of bits of the length
	Local, Remote        Traffic    // messages sent to ranks of this pod, and of others

	Algorithms coll.Counts // collectives by algorithm

	UnexpectedBytes, UnexpectedPeak uint64
	CreditUsed, CreditReturned      uint64 // bytes of credit used at peers, and granted again to peers
	CreditTaken                     uint64 // bytes of credit that peers have used
	Sends, Receives, Parked, Rings  int
	Collectives, Probes, Accesses   int
	Reachable                       int // windows that are registered now
	Peers                           int // other sidecars that were connected once
}
