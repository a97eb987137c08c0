// Package link defines the interface between a transport and the engine. The packages
// tcp, local, node and verbs and the simulator's reference link implement it. It holds
// types only; the conformance suite is linktest.
//
// Every link is a Link. What only some links can do is a field of Abilities, which each
// link fills in. Abilities is one struct, so that the compiler checks each ability
// against its signature, one comment explains it, and a link that wraps another one
// states which abilities it passes on. An optional interface that the engine finds by a
// type assertion has none of these properties: if a method is misspelt, or hidden by a
// wrapper, the ability is lost without a message.
//
// A link carries frames between two sidecars in order. It may lose its connection at any
// time (Sink.Down); sequence numbers and retransmission belong to the core, above the
// link. All calls, in both directions, are made on the engine's goroutine.
package link

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
)

// Errors that a link reports.
var (
	// ErrBroken means that the connection ended; the core resumes on the next one.
	ErrBroken = errors.New("connection broken")
	// ErrProtocol means that the peer sent bytes that no correct peer sends. The core
	// does not resume.
	ErrProtocol = errors.New("peer broke the protocol")
	// ErrKey means that a remote access was outside its registration or had a wrong key.
	ErrKey = errors.New("remote access refused: bad key or range")
	// ErrLater means that the call did not finish in this turn, because it would delay
	// other work too long: the turn's budget of registrations is spent, or the end of a
	// connection takes time. The caller repeats the call in the next turn, after Poll.
	ErrLater = errors.New("not in this turn")
)

// Peer numbers the sidecars of a job, 0 to pods-1.
type Peer int32

// Region numbers a piece of memory that the engine can reach: the pool of
// unexpected messages, a session's slab, a session's arena. Region numbers are
// never reused while anything refers to them.
type Region uint32

// Ref is a range of a region. The zero Ref is no memory.
type Ref struct {
	Region Region
	Off    uint64
	Len    uint64
}

// Slice returns the n bytes of r that begin at off.
// Preconditions: off+n <= r.Len.
func (r Ref) Slice(off, n uint64) Ref { return Ref{r.Region, r.Off + off, n} }

// Part returns the first part of r if at most most bytes are registered at once, and all
// of r if most is 0. Parts end at multiples of most/2 in their region, so that parts of
// another message in the region do not begin on the pages on which these end: a
// registration covers whole pages, and if two registrations shared a page, each would end
// the other.
func (r Ref) Part(most uint64) Ref {
	if most == 0 || r.Len <= most {
		return r
	}
	n := most
	if half := most / 2; half > 0 {
		n -= (r.Off + most) % half
	}
	return r.Slice(0, n)
}

// Memory returns the bytes of a Ref. The engine implements it; the bytes stay valid as
// long as the region is held.
type Memory interface {
	Bytes(Ref) []byte
}

// Protocol marks err, a fault in a peer's frames, as ErrProtocol.
func Protocol(err error) error { return as(ErrProtocol, err) }

// Broken marks err, the reason why a connection ended, as ErrBroken.
func Broken(err error) error { return as(ErrBroken, err) }

func as(kind, err error) error {
	if errors.Is(err, kind) {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// InlineMax is the largest payload that a Frame carries in itself, in bytes.
const InlineMax = 64

// Frame is one outgoing message of the wire protocol. The core owns it and does not
// change it or the payload's memory until the peer has acknowledged it, the link has
// reported it as delivered (Sink.Delivered), or the connection is down; a link may refer
// to the payload's memory until then. Post copies Head and Inline.
type Frame struct {
	Head    wire.Header
	Inline  [InlineMax]byte // the payload if Payload is zero: its first Head.Length bytes
	Payload Ref             // Head.Length bytes
	Gather  bool            // the link will gather the payload from its memory (Abilities.Gatherer)
}

// Caps describes what a link can do. The core decides by capabilities, never by names.
type Caps struct {
	Name      string
	Register  bool   // remote access needs Register and a key
	Read      bool   // Read copies remote memory into local memory
	Write     bool   // Write copies local memory into remote memory
	InOrder   bool   // the last byte of a write lands last, so that memory may be polled
	Ordered   bool   // writes to a peer land in the order in which they were started
	Notify    bool   // the link notifies the target when a remote write that asked for it is complete
	Delivers  bool   // the link reports by Sink.Delivered which frames need not be sent again
	Lent      bool   // Read accesses memory that applications have registered themselves (Lender)
	GatherMax int    // memory ranges from which one frame's payload may be gathered, in addition to its header; the core asks for one
	EagerMax  uint64 // largest message that should be sent eagerly

	// RegisterMax is the largest range that is registered at once: pinning a page takes a
	// hundred nanoseconds, and the engine serves no rank meanwhile. A larger message
	// moves in parts, with one registration each. 0 means no bound.
	RegisterMax uint64
}

// Key gives a peer access to registered memory.
type Key struct {
	Key  uint64 // never 0 and not guessable
	Addr uint64 // address of the registered range's first byte under Key
}

// Link carries frames to and from one or more peers.
type Link interface {
	Caps() Caps

	// Abilities returns what the link can do in addition to the methods below.
	Abilities() Abilities

	// Post accepts frames for peer, in order, and returns the number of frames accepted.
	// If that is fewer than all, the connection is full, and the core offers the rest
	// again. After Post accepted none, Poll returns work, and the descriptor that the
	// engine sleeps on becomes ready, when the link can accept some. Accepted frames may
	// not be written yet: the link refers to a payload's memory until it is written, and
	// the memory is retained because the frame is not acknowledged. A peer that
	// acknowledges a frame (wire.Header.Ack, Seq) before its payload is written breaks
	// the protocol, and the frame with that acknowledgement is not delivered. See
	// CheckAck.
	Post(peer Peer, frames []*Frame) int

	// Poll makes progress without waiting, reports what arrived to sink, and returns a
	// measure of the work done, 0 for none.
	Poll(sink Sink) int

	// Forget closes the connection to peer, if any, without Sink.Down. Operations in
	// flight end with ErrBroken in one of the next Polls, once none of them accesses
	// memory any more.
	Forget(peer Peer)

	Close() error
}

// Stream is a Link over sockets that it is given. A link that reaches some peers in
// another way contains one for the other peers.
type Stream interface {
	Link
	Attach(peer Peer, fd int) error // takes ownership of the connected socket fd, which replaces an older one
	FD() int                        // readable when Poll would find work, after a call of Arm
	Arm() bool                      // as Abilities.Arm
	Bytes() (in, out uint64)        // bytes moved so far
	Break(peer Peer)                // ends a connection as a failing network would
	SetMemory(m Memory)
}

// Delivery. A link with Caps.Delivers reports by Sink.Delivered that frames of a
// connection have arrived, without a message from the peer's engine. On a reliable
// connection the completion of a work request provides this (InfiniBand Architecture
// Specification, vol. 1, 9.7.5.1.6: the completion follows the acknowledgement of the
// last packet, which follows the placement of the message in the responder's memory). The
// link guarantees:
//
//   - Every frame of the connection up to the reported number is handed to the
//     peer's Sink, whatever fails, before that Sink receives Down and before it
//     receives anything of another connection; a Written that precedes the frame
//     is handed over before it. So a live peer never asks for the frame again.
//     Only a peer whose device failed with frames that it had acknowledged, or
//     whose process ended, may, and in both cases the job ends.
//   - The link no longer refers to the payloads of these frames.
//   - Numbers are reported in order, and each connection's before its Down.
//   - A frame that has arrived is reported in the end, as long as the connection
//     lives, if its payload is gathered, or has DeliveredBytes or more. A frame that
//     the device copies when it is posted may be reported with a later one.
//
// The receiver has the harder part: when it gives up a connection, for whatever reason,
// it first stops all incoming data, then hands over what has arrived, and then ends the
// connection. Delivered does not mean that the peer's engine has processed the frame;
// wire.Header.Ack says that.

// DeliveredBytes is the smallest payload whose delivery is reported even if no frame
// follows.
const DeliveredBytes = 256

// CheckAck returns an error if a frame of a peer acknowledges frames up to ack although
// the payload of frame oldest is not written yet. oldest is the first such frame; 0 means
// that all payloads are written.
func CheckAck(ack, oldest uint64) error {
	if oldest == 0 || ack < oldest {
		return nil
	}
	return fmt.Errorf("%w: acknowledges frame %d, but frame %d is not sent yet", ErrProtocol, ack, oldest)
}

// A link that executes remote operations on the CPU moves them piece by piece, in turns
// among the sessions that have any (queue.Fair), so that a session with large or many
// transfers does not delay a small transfer of another session.
const (
	PieceMax             = 64 << 10 // bytes of one piece
	OperationsPerSession = 4        // operations of one session that take turns: with more, each of them would only end later
)

// Remote is a Link that accesses memory of its peers without their CPU.
//
// Lifetimes. Memory that a remote operation may touch is retained on both sides until the
// operation is Done. On the initiator the caller retains it: the range of a Read or Write
// stays in place until its Done. On the target the registration retains it: the range
// stays in place until Deregister, and once Deregister has returned no operation touches
// it any more, whichever side started the operation and however far it had progressed. If
// the registration ends before the operation, the operation ends with ErrKey, or with
// ErrBroken on a link that can end it only together with its connection.
//
// Every operation that was started ends with one Sink.Done. Its error is nil; or wraps
// ErrBroken if the connection was lost or forgotten first; or ErrKey if the target
// refused, which may end the connection, too; or is another error if local memory cannot
// be registered, part by part, to its end. The Dones of a lost connection come before its
// Sink.Down; after Down, no operation that either side started on that connection touches
// local memory. A notified Write that ended with nil is reported at its target, even if
// the connection is lost meanwhile; one that ended with an error may have been reported.
// A frame that is posted after a Write has ended is delivered after the Write's data is
// in place and its Written is reported.
type Remote interface {
	Link
	// Register makes ref accessible to peers until Deregister (see Lifetimes).
	Register(ref Ref) (Key, error)
	Deregister(Key)
	// Read and Write move dst.Len or src.Len bytes; Sink.Done reports token. A Write with
	// notify calls Written(peer, notify) of the target's sink after the data is in place,
	// on links with Caps.Notify.
	Read(peer Peer, token uint64, dst Ref, src Key) error
	Write(peer Peer, token uint64, src Ref, dst Key, notify uint64) error
}

// Caster is a Remote with small writes whose completion is not reported. An answer of the
// peer's engine confirms them, and unconfirmed ones are sent again if the connection is
// lost.
type Caster interface {
	// Cast starts a Write of data, which the caller may change at once. Frames that are
	// posted and data that is cast or written to the peer afterwards arrive after it; if
	// it fails, the connection ends. Cast returns false and starts nothing if there is no
	// room now, or if this write cannot be cast; then the caller uses Write.
	Cast(peer Peer, data []byte, dst Key, notify uint64) bool
}

// Sink receives the events of a link. The engine implements it on top of the core.
//
// A small payload is handed over whole by Deliver. For a larger one the link calls Place
// for its destination, reads the payload into it, and calls Placed.
type Sink interface {
	// Deliver hands over a whole frame; payload is valid during the call.
	// An error means that the peer broke the protocol: the link closes the
	// connection and reports it Down with ErrProtocol, and nothing else of it.
	Deliver(peer Peer, h *wire.Header, payload []byte) error
	// Place returns the destination of the payload of h, h.Length bytes. A link that lost
	// its connection during the payload asks again for the same frame, and gets an
	// equivalent answer.
	Place(peer Peer, h *wire.Header) ([]byte, error)
	// Placed reports that the payload of the last Place for peer is complete.
	Placed(peer Peer) error
	// Done reports the end of a Read or Write.
	Done(peer Peer, token uint64, err error)
	// Written reports that a notified Write of peer is complete in memory.
	Written(peer Peer, notify uint64)
	// Delivered reports that the frames of the connection up to number seq have arrived
	// (see Delivery). Only links with Caps.Delivers call it.
	Delivered(peer Peer, seq uint64)
	// Down reports that the connection to peer ended.
	Down(peer Peer, err error)
}
