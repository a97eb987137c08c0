package node

import (
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A large payload that lies in a region which the peer can read does not go through the
// ring: where it lies does, and the peer's sidecar copies it from there to where it goes.
// That memory stays as it is until the frame is acknowledged (link.Frame). The header of
// such a frame has byRef, which is 0 otherwise, in the byte whose other bits are the type of
// the message's elements, and in place of the payload there are region u64 and offset u64.
const (
	refAt    = 3 // of the header
	byRef    = 1
	refBytes = frameAlign
)

// Bounds of the payloads that the peer has not come to: what comes next waits behind them.
const (
	aheadMax = 256 << 10
	refsMax  = 64
)

// ref is a payload that the peer may not have come to.
type ref struct {
	seq   uint64
	end   uint64 // of its frame in the ring
	bytes int
}

// refs are those of a connection, in order.
type refs struct {
	list        [refsMax]ref
	first, next uint32
	bytes       int
}

func (r *refs) add(x ref) {
	r.list[r.next%refsMax] = x
	r.next++
	r.bytes += x.bytes
}

// passed forgets those that end at or before head.
func (r *refs) passed(head uint64) {
	for r.first != r.next && r.list[r.first%refsMax].end <= head {
		r.bytes -= r.list[r.first%refsMax].bytes
		r.first++
	}
}

func (r *refs) full() bool { return r.next-r.first == refsMax || r.bytes >= aheadMax }

// oldest is the number of the first one's frame; 0: there is none.
func (r *refs) oldest() uint64 {
	if r.first == r.next {
		return 0
	}
	return r.list[r.first%refsMax].seq
}

// lies is where a payload lies that the peer can read, if it may go so.
func (c *conn) lies(f *link.Frame) (off uint64, ok bool) {
	if f.Head.Length <= wholeMax {
		return 0, false
	}
	s := c.l.shares[f.Payload.Region]
	if s == nil || f.Payload.Off+uint64(f.Head.Length) > s.size {
		return 0, false
	}
	c.l.tellShare(s)
	return f.Payload.Off, len(c.words) == 0 // else the peer may not hear of it in time
}

// refer writes a frame whose payload stays where it is.
func (c *conn) refer(f *link.Frame, off uint64) {
	b := c.out.span(wire.HeaderBytes)
	f.Head.Encode((*[wire.HeaderBytes]byte)(b))
	b[refAt] |= byRef
	c.out.at += wire.HeaderBytes
	b = c.out.span(refBytes)
	binary.LittleEndian.PutUint64(b[0:], uint64(f.Payload.Region))
	binary.LittleEndian.PutUint64(b[8:], off)
	c.out.at += refBytes
	c.l.stats.BytesLent += uint64(f.Head.Length)
	c.refs.add(ref{f.Head.Seq, c.out.at, int(f.Head.Length)})
}

// lying is a payload, or the rest of one, in memory of a peer.
type lying struct {
	of *region
	at uint64
}

// waits reports that there is one.
func (y lying) waits() bool { return y.of != nil }

// referred finds the payload of size bytes that a peer's frame refers to.
// Preconditions: c.in is behind its header, and its reference is here.
func (c *conn) referred(size int) (lying, error) {
	var b [16]byte
	copy(b[:], c.in.span(len(b)))
	region, off := binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
	if size <= wholeMax || region > uint64(^link.Region(0)) {
		return lying{}, fmt.Errorf("%w: a payload of %d bytes in region %d", link.ErrProtocol, size, region)
	}
	c.source = link.Region(region)
	for i := 0; c.regions[c.source] == nil && c.err == nil && c.ending == nil && i < wordsAhead; i += wordsATime {
		if c.hear() == 0 { // it was said before
			break
		}
	}
	m := c.regions[c.source]
	if m == nil && c.ending != nil { // before this side has heard of it
		return lying{}, c.ending
	}
	if m == nil || off > m.size || uint64(size) > m.size-off {
		return lying{}, fmt.Errorf("%w: a payload of %d bytes at %d of region %d, which is not known", link.ErrProtocol, size, off, region)
	}
	return lying{m, off}, nil
}
