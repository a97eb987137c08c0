// Package link is what a transport promises to the engine: the seam that tcp,
// local, node, the simulator's reference link and verbs stand behind. It holds types
// only; the conformance suite is linktest.
//
// Every link is a Link. What only some links can do is a field of Abilities, which
// each link fills in: one struct, so that the compiler checks each ability against
// its signature, one comment explains it, and a link that wraps another one says
// which abilities it passes on. An optional interface that the engine finds by a type
// assertion does none of these: a method that is misspelt, or hidden by a wrapper,
// is an ability that is silently gone.
//
// A link carries frames between two sidecars in order. It may lose its
// connection at any time (Sink.Down); sequence numbers and retransmission are
// the core's, above the link. All calls, in both directions, are made on the
// engine's goroutine.
package link

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
)

// Errors that a link reports.
var (
	// ErrBroken: the connection ended; the core resumes on the next one.
	ErrBroken = errors.New("connection broken")
	// ErrProtocol: the peer sent what no correct peer sends. Not resumed.
	ErrProtocol = errors.New("peer broke the protocol")
	// ErrKey: a remote access was outside its registration or with a wrong key.
	ErrKey = errors.New("remote access refused: bad key or range")
	// ErrLater: others would wait too long for it in this turn, in which as much was
	// registered as may be, or the end of a connection takes its time. It can be asked
	// for again in the next one, after Poll.
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

// Slice is the part of r from off, n bytes long.
// Preconditions: off+n <= r.Len.
func (r Ref) Slice(off, n uint64) Ref { return Ref{r.Region, r.Off + off, n} }

// Part is the first part of r where at most most bytes are registered at once; 0: all of
// it. Parts end at multiples of half of that in their region, so that those of another
// message there do not begin on the pages on which these end: a registration is of whole
// pages, and two of one page would make each end the other.
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

// Memory finds the bytes of a Ref. The engine implements it; bytes stay valid
// as long as the region is held.
type Memory interface {
	Bytes(Ref) []byte
}

// Protocol makes what is wrong with a peer's frames a breach of the protocol.
func Protocol(err error) error { return as(ErrProtocol, err) }

// Broken makes whatever has ended a connection the reason why its operations end.
func Broken(err error) error { return as(ErrBroken, err) }

func as(kind, err error) error {
	if errors.Is(err, kind) {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// InlineMax is the most payload that a Frame carries in itself.
const InlineMax = 64

// Frame is one message of the wire protocol on its way out. The core owns it
// and keeps it, and the payload's memory, unchanged until the peer has
// acknowledged it, the link has told that it is delivered (Sink.Delivered), or the
// connection is down; a link may refer to the payload's memory until then. Head and
// Inline are copied by Post.
type Frame struct {
	Head    wire.Header
	Inline  [InlineMax]byte // the payload when Payload is no memory; Head.Length bytes of it
	Payload Ref             // Head.Length bytes
	Gather  bool            // the link has said that it will gather the payload from where it is
}

// Caps is what a link can do. The core asks for capabilities, never for names.
type Caps struct {
	Name      string
	Register  bool   // remote access needs Register and a key
	Read      bool   // Read: remote memory into local memory
	Write     bool   // Write: local memory into remote memory
	InOrder   bool   // a write's last byte lands last, so that memory may be polled
	Ordered   bool   // writes to a peer land in the order in which they were started
	Notify    bool   // the link tells the target when a remote write asked to be notified is complete
	Delivers  bool   // the link tells by Sink.Delivered which frames need not be sent again
	Lent      bool   // Read goes from and into memory that applications have registered themselves (Lender)
	GatherMax int    // memory ranges that one frame's payload may be gathered from, beside its header; the core asks for one
	EagerMax  uint64 // largest message that is best sent eagerly

	// RegisterMax is the most that is registered at once: pinning a page takes a
	// hundred nanoseconds, while no rank is heard. A larger message moves in parts, with
	// a registration each. 0: there is no bound.
	RegisterMax uint64
}

// Key lets a peer reach registered memory.
type Key struct {
	Key  uint64 // never 0 and not guessable
	Addr uint64 // address of the registered range's first byte under Key
}

// Link carries frames to and from one or more peers.
type Link interface {
	Caps() Caps

	// Abilities are what the link can do beyond what follows.
	Abilities() Abilities

	// Post takes frames to peer, in order, and returns how many it took; fewer
	// than all means that the connection is full: the core offers the rest
	// again. After it took none, Poll returns work, and whatever the engine
	// sleeps on is ready, when it can take some. Frames taken may still be on
	// their way out: the link refers to a payload's memory until it is written,
	// and what keeps that memory is that the frame is not acknowledged. A peer
	// that acknowledges a frame (wire.Header.Ack, Seq) whose payload is not
	// written breaks the protocol; what says so is not delivered. See Ahead.
	Post(peer Peer, frames []*Frame) int

	// Poll moves what can be moved without waiting, tells sink what arrived,
	// and returns a measure of the work done, 0 for none.
	Poll(sink Sink) int

	// Forget closes the connection to peer, if any, without Sink.Down.
	// Operations under way end with ErrBroken at one of the next Polls: when none of
	// them reaches for memory any more.
	Forget(peer Peer)

	Close() error
}

// Stream is a Link over sockets that it is given. Links that reach some peers in another
// way have one for the others.
type Stream interface {
	Link
	Attach(peer Peer, fd int) error // takes over the connected socket fd, replacing an older one
	FD() int                        // readable when Poll would find work
	Bytes() (in, out uint64)        // that were moved so far
	Break(peer Peer)                // ends a connection as a failing network would
	SetMemory(m Memory)
}

// Delivery. A link with Caps.Delivers tells by Sink.Delivered that the frames of a
// connection have come, without a word of the peer's engine: as the completion of a
// work request does on a reliable connection (InfiniBand Architecture Specification,
// vol. 1, 9.7.5.1.6: it follows the acknowledgement of the last packet, and that the
// message's place in the responder's memory). What holds then:
//
//   - Every frame of the connection up to the number that was told is handed to the
//     peer's Sink, whatever breaks, before that is told Down and before it is told
//     anything of another connection; and before it what was Written before it. So a
//     peer that lives never asks for it again; only one whose device is gone with what
//     it had acknowledged may, or one whose process ends, and the job ends with either.
//   - The link refers to the payloads of these frames no more.
//   - Numbers are told in order, each connection's before its Down.
//   - A frame that has come is told of in the end, as long as the connection lives,
//     if its payload is gathered, or has ToldBytes and more. What a device copies when
//     it is posted may be told of with a later one.
//
// The peer's part is the harder one: of a connection that is given up, for whatever
// reason, it lets nothing more come in, and hands over what has come, before it ends
// it. That the peer's engine has taken a frame into account is not told by this:
// what says so is wire.Header.Ack.

// ToldBytes is the payload from which on a frame's delivery is told without others
// behind it.
const ToldBytes = 256

// Ahead is what is wrong with a peer's frame that acknowledges up to ack, when
// oldest is the number of the first frame whose payload is not written; 0: all are.
func Ahead(ack, oldest uint64) error {
	if oldest == 0 || ack < oldest {
		return nil
	}
	return fmt.Errorf("%w: acknowledges frame %d, and frame %d is not sent yet", ErrProtocol, ack, oldest)
}

// Remote operations that a link's own processor carries out go piece by piece, in turn among
// the sessions that have any (queue.Fair), so that no session's large or many transfers hold
// up another's small one.
const (
	PieceMax = 64 << 10 // bytes of one piece
	Abreast  = 4        // operations of one session that take turns: more would only end later
)

// Remote is a Link that reaches memory of its peers without their CPU.
//
// Lifetimes. Memory that a remote operation may touch is held on both sides
// until the operation is Done. On the side that starts it the caller holds it:
// the range of a Read or Write stays in place until its Done. On the other side
// the registration holds it: the range stays in place until Deregister, and
// once Deregister has returned no operation touches it any more, whoever
// started it and however far it had come. An operation whose registration ends
// first ends with ErrKey, or with ErrBroken on a link that can end it only
// together with its connection.
//
// Every operation that was started ends with one Sink.Done: nil, an error that
// wraps ErrBroken when its connection was lost or forgotten first, or ErrKey
// when the target refused, which may end the connection, too, or another error where
// this side's memory cannot be registered, part by part, to its end. The Dones of a lost connection come before its
// Sink.Down; after it, nothing that either side started on that connection
// touches this side's memory. A notified Write that ended with nil is reported
// at its target, also when the connection is lost meanwhile; one that ended
// with an error may have been. Frames that are posted after a Write has ended
// are delivered after its data is in place and its Written told.
type Remote interface {
	Link
	// Register makes ref reachable by peers until Deregister (see Lifetimes).
	Register(ref Ref) (Key, error)
	Deregister(Key)
	// Read and Write move dst.Len or src.Len bytes; Sink.Done reports token.
	// A Write with notify makes the target's sink see Written(peer, notify)
	// after the data, on links with Caps.Notify.
	Read(peer Peer, token uint64, dst Ref, src Key) error
	Write(peer Peer, token uint64, src Ref, dst Key, notify uint64) error
}

// Caster is a Remote that takes small writes whose end nobody is told: what says that
// they have come is an answer of the peer's engine, and what has not when the connection
// is lost is sent again.
type Caster interface {
	// Cast starts a Write of data, which may change at once.
	// What is posted, cast or written to the peer afterwards is delivered, or in place,
	// after it; its failure ends the connection.
	// false: nothing is started, since there is no room for it now, or it is none of
	// those that can be cast. Write does as well.
	Cast(peer Peer, data []byte, dst Key, notify uint64) bool
}

// Sink is told what a link saw. The engine implements it on top of the core.
//
// Small payloads come whole with Deliver; for larger ones the link asks Place
// where they shall go, reads them straight there, and reports Placed.
type Sink interface {
	// Deliver hands over a whole frame; payload is valid during the call.
	// An error means that the peer broke the protocol: the link closes the
	// connection and reports it Down with ErrProtocol, and nothing else of it.
	Deliver(peer Peer, h *wire.Header, payload []byte) error
	// Place says where the payload of h shall go, h.Length bytes. A link that
	// lost its connection half way asks again for the same frame, and gets
	// an equivalent answer.
	Place(peer Peer, h *wire.Header) ([]byte, error)
	// Placed reports that the payload of the last Place of peer is complete.
	Placed(peer Peer) error
	// Done reports the end of a Read or Write.
	Done(peer Peer, token uint64, err error)
	// Written reports a peer's notified Write, complete in memory.
	Written(peer Peer, notify uint64)
	// Delivered reports that the frames of the connection up to number seq have come
	// (see Delivery). Called only where Caps.Delivers says so.
	Delivered(peer Peer, seq uint64)
	// Down reports that the connection to peer ended.
	Down(peer Peer, err error)
}
