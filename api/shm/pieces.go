package shm

import (
	"encoding/binary"
	"fmt"
)

// The arena of a client with FeaturePieces is allocated piece by piece (§2.3): the client
// sends an Ask on the Unix socket, and the sidecar answers with an Answer, in order.
const (
	AskBytes      = 32
	AnswerBytes   = 512
	askMagic      = 0x4f554152 // "RAUO"
	answerMagic   = 0x4f554e52 // "RNUO"
	answerTextMax = AnswerBytes - 32
)

// PieceUnit is what offset and length of a piece are multiples of.
const PieceUnit = 4096

// MaxPieces bounds the allocated parts of an arena that do not touch each other. A client that
// allocates upwards from one or two offsets has one or two.
const MaxPieces = 64

// Ask is a client's request for a piece of its arena.
type Ask struct{ Off, Bytes uint64 }

// Encode returns the message's bytes.
func (a *Ask) Encode() []byte {
	b := make([]byte, AskBytes)
	le := binary.LittleEndian
	le.PutUint32(b[0:], askMagic)
	le.PutUint64(b[8:], a.Off)
	le.PutUint64(b[16:], a.Bytes)
	return b
}

// DecodeAsk decodes an Ask.
func DecodeAsk(b []byte) (Ask, error) {
	le := binary.LittleEndian
	if len(b) != AskBytes || le.Uint32(b) != askMagic {
		return Ask{}, fmt.Errorf("shm: %d bytes that ask for no piece of the arena", len(b))
	}
	return Ask{Off: le.Uint64(b[8:]), Bytes: le.Uint64(b[16:])}, nil
}

// Answer is how many bytes from Off on are allocated now. If these are fewer than the Ask has
// requested, Text is the reason.
type Answer struct {
	Off, Bytes uint64
	Text       string
}

// Encode returns the message's bytes.
func (a *Answer) Encode() []byte {
	b := make([]byte, AnswerBytes)
	le := binary.LittleEndian
	le.PutUint32(b[0:], answerMagic)
	le.PutUint64(b[8:], a.Off)
	le.PutUint64(b[16:], a.Bytes)
	n := copy(b[32:], a.Text)
	le.PutUint32(b[4:], uint32(n))
	return b
}

// DecodeAnswer decodes an Answer.
func DecodeAnswer(b []byte) (Answer, error) {
	le := binary.LittleEndian
	if len(b) != AnswerBytes || le.Uint32(b) != answerMagic {
		return Answer{}, fmt.Errorf("shm: %d bytes that are no answer about a piece of the arena", len(b))
	}
	n := min(le.Uint32(b[4:]), answerTextMax)
	return Answer{Off: le.Uint64(b[8:]), Bytes: le.Uint64(b[16:]), Text: string(b[32 : 32+n])}, nil
}

// The least and the most that a client requests at once beyond its present need. An answer takes
// some ten microseconds, and each page of a piece takes as long as a page fault.
const (
	pieceLeast = 1 << 20
	pieceMost  = 64 << 20
)

// PieceEnd returns up to where a client requests memory, of size bytes that are allocated up to
// ready, if it needs them up to end: an eighth more than is allocated, within the two bounds.
func PieceEnd(ready, end, size uint64) uint64 {
	more := min(max(ready/8, pieceLeast), pieceMost)
	return min((max(end, ready+more)+PieceUnit-1)&^(PieceUnit-1), size)
}
