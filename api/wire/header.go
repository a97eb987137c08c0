// Package wire defines the bytes that sidecars exchange: the header of frames, and the
// payloads that have a structure. PROTOCOL.md is the text of the contract; the sections
// cited here are its sections. The core and the links encode and decode frames with it.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Version is the protocol version; sidecars of different versions refuse each other
// during connection setup (§2).
const Version = 2

// HeaderBytes is the size of every frame's header (§3).
const HeaderBytes = 64

// Align is the alignment of frames on a stream: the size of every frame is a multiple of
// it, because zeros follow the payload (§1). Copies between a socket's pages and payloads
// then never differ by a few bytes modulo the page size, at which the string copy of some
// processors falls to a sixteenth of its speed.
const Align = 64

// Padding returns how many zeros follow a payload of n bytes on a stream.
func Padding(n uint32) int { return int(-n % Align) }

// FrameMax is the largest payload of one frame. Longer data is cut into
// fragments, so that a small message never waits behind a large one for long.
const FrameMax = 1 << 20

// Features, in A of the first Ack of a connection (§3.3). A sidecar without them sends 0.
const (
	FeatureAgain uint64 = 1 << iota // the sender supports further generations of attachments (§9)
	FeatureElem                     // the sender also accepts headers with Elem
	FeatureYield                    // the sender widens windows of credit, and answers Yield (§3.4)
)

// ErrMalformed means that bytes are not a frame of this protocol.
var ErrMalformed = errors.New("malformed frame")

// Type is the type of a frame (§4).
type Type uint8

// Frame types. Numbers are never reused.
const (
	Ack       Type = 1  // only the header's ack and credit; unsequenced
	Heartbeat Type = 2  // unsequenced
	Eager     Type = 3  // A: message length; payload: the message. FlagSync: B is the sender's request, and Matched is the answer. FlagData: B is its data. FlagReply: B is the sender's receive of the reply
	Matched   Type = 4  // A: sender's request; FlagReply: its receive of the reply, because there will be none
	RTS       Type = 5  // A: message length, B: sender's request; payload: RTSBody
	Pull      Type = 6  // A: sender's request, B: receiver's request; payload: PullBody
	Data      Type = 7  // A: receiver's request, B: offset in the message
	Fin       Type = 8  // A: sender's request; B: status
	Written   Type = 9  // A: receiver's request: a remote write that Pull asked for is complete; B: 0, or one more than the offset of the part that has failed
	Retract   Type = 10 // A: sender's request, B: 0; the sender cancels an unmatched RTS or sync eager
	Retracted Type = 11 // A: sender's request; B: 1 cancelled, 0 too late
	Put       Type = 12 // Context: window, Tag: target offset; payload
	Get       Type = 13 // Context: window, Tag: target offset, A: origin's request, B: length
	Got       Type = 14 // A: origin's request, B: offset; payload
	Acc       Type = 15 // like Put; A: type<<8|op
	Fetch     Type = 16 // Tag: target offset, A: origin's request, B: type<<8|op (op 0: compare and swap); payload: operands
	Fetched   Type = 17 // A: origin's request; payload: old value
	Lock      Type = 18 // Context: window, A: origin's request, B: 1 exclusive
	Locked    Type = 19 // A: origin's request
	Unlock    Type = 20 // Context: window
	Flush     Type = 21 // A: origin's request
	Flushed   Type = 22 // A: origin's request; B: status of the accesses since the last flush
	Abort     Type = 23 // Src: failed rank, A: code; payload: reason text
	Bye       Type = 24 // this sidecar has no more ranks; the end of its connection is no failure
	Ready     Type = 25 // receiver-first rendezvous: A: receiver's request, B: its bytes; Dst: the rank that is to send; payload: ReadyBody
	Ring      Type = 26 // unsequenced; payload: RingBody: small eager frames may be written there
	Ended     Type = 27 // A: receiver's request: the send that it pulled from has ended; B: status
	Left      Type = 28 // Src: a rank that has left; no frame of it follows
	Taken     Type = 29 // A: receiver's request: a write into the memory that it offered (Ready) is in flight
	Withdraw  Type = 30 // A: receiver's request: it asks to cancel its offer (Ready)
	Withdrawn Type = 31 // A: receiver's request; B: 1 its memory is not written, 0 it is
	Expose    Type = 32 // A: the number by which the origin requests remote access to the window Context of Dst
	Exposed   Type = 33 // A: origin's number, B: 1 there is no such window, Tag: target's number; payload: ExposedBody
	Conceal   Type = 34 // A: origin's number, B: target's: the window has ended
	Concealed Type = 35 // A: target's number: no access to it is in flight any more
	Post      Type = 36 // Context: window of Src, which Dst may access
	Complete  Type = 37 // Context: window of Dst; the accesses by Src are complete
	Place     Type = 38 // not sent any more; earlier releases announce the CPUs of their ranks, and it is ignored
	Look      Type = 39 // unsequenced; A: 1 the sender polls its ring all the time, so that writes there need no notification; 0 it may sleep
	Again     Type = 40 // A: first frame not received, B: the generation of attachments that the sender has begun
	Yield     Type = 41 // A: bytes of unused credit that the sender asks back
	Yielded   Type = 42 // A: bytes of credit that the sender has given up
	typeMax   Type = 42
)

func (t Type) String() string {
	if t < 1 || t > typeMax {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return [...]string{
		"", "ack", "heartbeat", "eager", "matched", "rts", "pull", "data", "fin", "written",
		"retract", "retracted", "put", "get", "got", "acc", "fetch", "fetched", "lock", "locked", "unlock",
		"flush", "flushed", "abort", "bye", "ready", "ring", "ended", "left", "taken", "withdraw", "withdrawn",
		"expose", "exposed", "conceal", "concealed", "post", "complete", "place", "look", "again", "yield", "yielded",
	}[t]
}

// Flags of a header.
const (
	FlagSync   uint8 = 1 << iota // eager: the sender asks for Matched
	FlagAckNow                   // acknowledge without delay
	FlagColl                     // belongs to a collective: matched in a space of its own
	_                            // 8 was: ranks of the sender compute
	FlagData                     // Eager, RTS: the message has data: in B of an Eager, which is not sync then, or in RTSBody
	FlagMore                     // Pull: the receiver will ask for the next part when it has this one
	FlagReply                    // Eager, RTS: the message asks for a reply, and neither is sync nor has data; Matched: there will be no reply

	flagsAll = FlagSync | FlagAckNow | FlagColl | FlagData | FlagMore | FlagReply
)

// bare reports whether frames of a type have no payload (§4).
func (t Type) bare() bool {
	switch t {
	case Eager, RTS, Pull, Data, Put, Got, Acc, Fetch, Fetched, Abort, Ready, Ring, Exposed, Place:
		return false
	}
	return true
}

// ElemMax is the largest number of an element type (L§7).
const ElemMax = 12

// Header precedes every payload (§3). Offsets in bytes, little-endian:
//
//	 0 version u8   1 type u8   2 flags u8   3 elements u8, times 2   4 payload length u32
//	 8 seq u64     16 ack u64  24 credit u32  28 context u32
//	32 src u32     36 dst u32  40 tag u64    48 A u64    56 B u64
type Header struct {
	Type    Type
	Flags   uint8
	Elem    uint8  // Eager, RTS: the type of the message's elements; 0: not given
	Length  uint32 // payload bytes that follow
	Seq     uint64 // position among the sequenced frames of this direction, from 1; 0: unsequenced
	Ack     uint64 // every frame up to and including this one has arrived
	Credit  uint32 // eager bytes granted since the connection's start, in units of CreditUnit, modulo 2^32
	Context uint32
	Src     uint32 // world rank
	Dst     uint32 // world rank
	Tag     uint64
	A, B    uint64
}

// CreditUnit is the unit of Header.Credit in bytes.
const CreditUnit = 64

// Encode writes h to b.
func (h *Header) Encode(b *[HeaderBytes]byte) {
	h.encodeFront((*[SlotHeadMin]byte)(b[:]))
	binary.LittleEndian.PutUint64(b[48:], h.A)
	binary.LittleEndian.PutUint64(b[56:], h.B)
}

// encodeFront writes the fields that frames have everywhere, even in a slot (slot.go):
// all but A and B.
func (h *Header) encodeFront(b *[SlotHeadMin]byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], Version|uint64(h.Type)<<8|uint64(h.Flags)<<16|uint64(h.Elem)<<25|uint64(h.Length)<<32)
	le.PutUint64(b[8:], h.Seq)
	le.PutUint64(b[16:], h.Ack)
	le.PutUint64(b[24:], uint64(h.Credit)|uint64(h.Context)<<32)
	le.PutUint64(b[32:], uint64(h.Src)|uint64(h.Dst)<<32)
	le.PutUint64(b[40:], h.Tag)
}

// Decode reads h from b and checks everything that does not depend on the state of the
// connection. Every error wraps ErrMalformed.
func (h *Header) Decode(b *[HeaderBytes]byte) error {
	h.decodeFront((*[SlotHeadMin]byte)(b[:]))
	h.A, h.B = binary.LittleEndian.Uint64(b[48:]), binary.LittleEndian.Uint64(b[56:])
	return h.check(b[0], b[3])
}

// decodeFront reads the fields that encodeFront writes.
func (h *Header) decodeFront(b *[SlotHeadMin]byte) {
	le := binary.LittleEndian
	w := le.Uint64(b[0:])
	h.Type, h.Flags, h.Elem, h.Length = Type(w>>8), uint8(w>>16), uint8(w>>25)&0x7f, uint32(w>>32)
	h.Seq, h.Ack = le.Uint64(b[8:]), le.Uint64(b[16:])
	w = le.Uint64(b[24:])
	h.Credit, h.Context = uint32(w), uint32(w>>32)
	w = le.Uint64(b[32:])
	h.Src, h.Dst = uint32(w), uint32(w>>32)
	h.Tag = le.Uint64(b[40:])
}

// check checks a header by itself. Preconditions: version is the byte at 0, and elements
// the one at 3, of which one bit belongs to the link (§2.3).
func (h *Header) check(version, elements byte) error {
	switch {
	case version != Version:
		return fmt.Errorf("%w: version %d, want %d", ErrMalformed, version, Version)
	case h.Type < 1 || h.Type > typeMax || elements&1 != 0:
		return fmt.Errorf("%w: %v", ErrMalformed, h.Type)
	case h.Elem != 0 && (h.Elem > ElemMax || h.Type != Eager && h.Type != RTS):
		return fmt.Errorf("%w: %v with elements of type %d, want at most %d, and 0 without a message", ErrMalformed, h.Type, h.Elem, ElemMax)
	case h.Flags&^flagsAll != 0:
		return fmt.Errorf("%w: %v with flags %#x", ErrMalformed, h.Type, h.Flags)
	case h.Length > 0 && h.Type.bare():
		return fmt.Errorf("%w: %v with a payload of %d bytes", ErrMalformed, h.Type, h.Length)
	case h.Length > FrameMax:
		return fmt.Errorf("%w: payload of %d bytes, want at most %d", ErrMalformed, h.Length, FrameMax)
	case (h.Seq == 0) != (h.Type == Ack || h.Type == Heartbeat || h.Type == Ring || h.Type == Look):
		return fmt.Errorf("%w: %v with sequence number %d", ErrMalformed, h.Type, h.Seq)
	}
	return nil
}
