package corpus

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// kind is the first byte of an item of a recording. Numbers are never reused.
type kind byte

// Inputs.
const (
	endOfRecording kind = iota // a recording that was cut may lack it
	inAttachAll                // by a client of all features
	inBound
	inDetach
	inLend
	inSubmit
	inDeliver
	inPlace
	inPlaced
	inDelivered
	inRemoteDone
	inRemoteWritten
	inLinkUp
	inLinkDown
	inLinkFailed
	inPeerLost
	inFail
	inLeave
	inAbsent
	inRenew
	inSit
	inDoze
	inPollMemory
	inAdvance
	inFlush
	inTick
	inAttach
	inUnattach
	inAborted
)

// Items that precede an input in the recording: memory that others than the core changed before or
// during the input, and the results of the core's calls of core.Ports during the input.
const (
	bytesChanged  kind = 64 + iota // region, offset, bytes
	pieceKnown                     // session, from, to
	returnedKey                    // key, address, error
	returnedError                  // error
	returnedBool                   // 0 or 1
	returnedCount                  // number
)

// itemMax bounds an item's bytes: a frame and its header.
const itemMax = 4 << 20

// encoder appends items to a buffer.
type encoder struct{ b []byte }

func (e *encoder) kind(k kind)     { e.b = append(e.b, byte(k)) }
func (e *encoder) number(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) bytes(p []byte)  { e.number(uint64(len(p))); e.b = append(e.b, p...) }
func (e *encoder) numbers(v ...uint64) {
	for _, x := range v {
		e.number(x)
	}
}

// Classes of errors that the core distinguishes.
const (
	errNone = iota
	errBroken
	errProtocol
	errKey
	errLater
	errAbsent // core.AbsentError
	errOther
)

func (e *encoder) err(err error) {
	var a *core.AbsentError
	switch {
	case err == nil:
		e.number(errNone)
		return
	case errors.As(err, &a):
		e.numbers(errAbsent, uint64(a.Rank))
	case errors.Is(err, link.ErrProtocol):
		e.number(errProtocol)
	case errors.Is(err, link.ErrBroken):
		e.number(errBroken)
	case errors.Is(err, link.ErrKey):
		e.number(errKey)
	case errors.Is(err, link.ErrLater):
		e.number(errLater)
	default:
		e.number(errOther)
	}
	e.bytes([]byte(err.Error()))
}

func (e *encoder) ref(r link.Ref) { e.numbers(uint64(r.Region), r.Off, r.Len) }
func (e *encoder) key(k link.Key) { e.numbers(k.Key, k.Addr) }
func (e *encoder) flag(on bool) {
	if on {
		e.number(1)
	} else {
		e.number(0)
	}
}

// decoder reads items. Its first error is kept, and values are 0 from then on.
type decoder struct {
	r   *bufio.Reader
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decoder) kind() kind {
	b, err := d.r.ReadByte()
	if err != nil {
		d.fail(err)
	}
	return kind(b)
}

func (d *decoder) number() uint64 {
	v, err := binary.ReadUvarint(d.r)
	if err != nil {
		d.fail(err)
		return 0
	}
	return v
}

func (d *decoder) bytes() []byte {
	n := d.number()
	if n > itemMax {
		d.fail(fmt.Errorf("an item of %d bytes, want at most %d", n, itemMax))
	}
	if d.err != nil {
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(d.r, b); err != nil {
		d.fail(err)
	}
	return b
}

func (d *decoder) flag() bool { return d.number() != 0 }

func (d *decoder) ref() link.Ref {
	return link.Ref{Region: link.Region(d.number()), Off: d.number(), Len: d.number()}
}

func (d *decoder) key() link.Key { return link.Key{Key: d.number(), Addr: d.number()} }

// replayed is an error of a recording: with its class and its text.
type replayed struct {
	text string
	kind error
}

func (r *replayed) Error() string { return r.text }
func (r *replayed) Unwrap() error { return r.kind }

// error reads an error; the returned one is nil if none was recorded.
func (d *decoder) error() error {
	var of error
	switch class := d.number(); class {
	case errNone:
		return nil
	case errAbsent:
		rank := uint32(d.number())
		return &core.AbsentError{Rank: rank, Text: string(d.bytes())}
	case errBroken:
		of = link.ErrBroken
	case errProtocol:
		of = link.ErrProtocol
	case errKey:
		of = link.ErrKey
	case errLater:
		of = link.ErrLater
	case errOther:
	default:
		d.fail(fmt.Errorf("an error of class %d", class))
	}
	return &replayed{string(d.bytes()), of}
}
