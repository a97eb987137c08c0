package node

import (
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A large payload in a region that the peer can read does not pass through the ring. Its
// location does, and the peer's sidecar copies it from there to its destination. The
// memory stays unchanged until the frame is acknowledged (link.Frame). The header of such
// a frame has the bit byRef, otherwise 0, in the byte whose other bits are the type of
// the message's elements; instead of the payload the frame has region u64 and offset u64.
const (
	refAt    = 3 // offset in the header
	byRef    = 1
	refBytes = frameAlign
)

// Bounds of the payloads that the peer has not read yet: later frames wait behind them.
const (
	aheadMax = 256 << 10 // bytes: as many as a ring of a small job holds
	refsMax  = 64        // payloads, so that the queue needs no allocation
)

// ref is a payload that the peer may not have read yet.
type ref struct {
	seq   uint64
	end   uint64 // end of its frame in the ring
	bytes int
}

// refs is the queue of the refs of a connection.
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

// release removes the refs that end at or before head.
func (r *refs) release(head uint64) {
	for r.first != r.next && r.list[r.first%refsMax].end <= head {
		r.bytes -= r.list[r.first%refsMax].bytes
		r.first++
	}
}

func (r *refs) full() bool { return r.next-r.first == refsMax || r.bytes >= aheadMax }

// oldest returns the frame number of the first ref, or 0 if there is none.
func (r *refs) oldest() uint64 {
	if r.first == r.next {
		return 0
	}
	return r.list[r.first%refsMax].seq
}

// shareable returns the offset of a payload that the peer can read, if it may be sent by
// reference.
func (c *conn) shareable(f *link.Frame) (off uint64, ok bool) {
	if f.Head.Length <= wholeMax {
		return 0, false
	}
	s := c.l.shares[f.Payload.Region]
	if s == nil || f.Payload.Off+uint64(f.Head.Length) > s.size {
		return 0, false
	}
	c.l.announce(s)
	return f.Payload.Off, len(c.unsent) == 0 // otherwise the announcement may arrive too late
}

// writeRef writes a frame whose payload stays in its memory.
func (c *conn) writeRef(f *link.Frame, off uint64) {
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

// remoteSpan is a payload, or the rest of one, in memory of a peer.
type remoteSpan struct {
	of *region
	at uint64
}

// pending reports whether bytes remain.
func (y remoteSpan) pending() bool { return y.of != nil }

// resolveRef returns the payload of size bytes to which a peer's frame refers.
// Preconditions: c.in is behind the header of the frame, and the reference is in the
// ring.
func (c *conn) resolveRef(size int) (remoteSpan, error) {
	var b [16]byte
	copy(b[:], c.in.span(len(b)))
	region, off := binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
	if size <= wholeMax || region > uint64(^link.Region(0)) {
		return remoteSpan{}, fmt.Errorf("%w: payload of %d bytes in region %d, want more than %d bytes and a region of 32 bits", link.ErrProtocol, size, region, wholeMax)
	}
	c.source = link.Region(region)
	for i := 0; c.regions[c.source] == nil && c.err == nil && c.end.cause == nil && i < controlsPerFrame; i += controlsPerPoll {
		if c.readControls() == 0 { // its announcement was sent before the frame
			break
		}
	}
	m := c.regions[c.source]
	if m == nil && c.end.cause != nil { // the peer ended before this side received the announcement
		return remoteSpan{}, c.end.cause
	}
	if m == nil || off > m.size || uint64(size) > m.size-off {
		return remoteSpan{}, fmt.Errorf("%w: payload of %d bytes at offset %d of region %d, which is not announced or smaller", link.ErrProtocol, size, off, region)
	}
	return remoteSpan{m, off}, nil
}
