package verbs

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// slotBytes is the most that one message carries: a frame with a payload of 4 KiB fits in
// one, as it does in the buffer of tcp.
const (
	wholeMax  = 4 << 10
	slotBytes = wire.HeaderBytes + wholeMax
)

// Limits of the frames that wait to be sent to a peer.
const (
	waitMax  = 64        // frames of one connection
	aheadMax = 256 << 10 // bytes of payloads, because later frames wait behind them
	// gatherMin is the size from which a payload may be gathered.
	gatherMin = 128
)

// outgoing is the queue of frames that a connection has accepted and not sent.
type outgoing struct {
	queue [waitMax]frame
	first uint32
	count uint32
	bytes int
}

// frame is a copy of those parts of a link.Frame that Post must copy.
type frame struct {
	head    [wire.HeaderBytes]byte
	inline  [link.InlineMax]byte
	payload link.Ref
	seq     uint64
	length  int // bytes of the payload
	done    int // bytes of header and payload that are in messages
	method  method
}

// method is how a frame's payload is sent, decided when the frame is first packed.
type method uint8

const (
	undecided method = iota
	copied
	gathered
)

func (f *frame) size() int { return wire.HeaderBytes + f.length }

func (o *outgoing) full() bool { return o.count == waitMax || o.bytes >= aheadMax }

func (o *outgoing) add(f *link.Frame) {
	w := &o.queue[(o.first+o.count)%waitMax]
	f.Head.Encode(&w.head)
	w.seq, w.length, w.done, w.payload, w.method = f.Head.Seq, int(f.Head.Length), 0, f.Payload, undecided
	if f.Payload.Region == 0 {
		w.payload = link.Ref{}
		copy(w.inline[:], f.Inline[:w.length])
	}
	o.count++
	o.bytes += w.length
}

// oldest returns the number of the first frame with a payload in memory, or 0 if there is
// none. Payload that is in messages already belongs to the device, and is registered.
func (o *outgoing) oldest() uint64 {
	for i := range o.count {
		if f := &o.queue[(o.first+i)%waitMax]; f.payload.Region != 0 {
			return f.seq
		}
	}
	return 0
}

func (o *outgoing) next() *frame { return &o.queue[o.first] }

// pop removes the first frame, all of which is in messages, and returns its number.
func (o *outgoing) pop() uint64 {
	f := o.next()
	o.bytes -= f.length
	o.first = (o.first + 1) % waitMax
	o.count--
	return f.seq
}

// message is the result of fill: used bytes of the slot, followed by a range of a payload
// in its memory.
type message struct {
	used   int
	gather link.Ref
	last   uint64 // number of the last frame that ends in the message; 0: none
}

// end records that a frame ends in the message; frames without a number are not repeated.
func (m *message) end(seq uint64) { m.last = max(m.last, seq) }

// fill moves frames from o into a slot. use reports, once for each frame, whether its
// payload is gathered. A frame that fits into a message is never cut. Unlike in a stream
// of bytes there is no padding between frames.
func (o *outgoing) fill(slot []byte, m link.Memory, use func(link.Ref) bool) (msg message) {
	for o.count > 0 {
		f := o.next()
		room := len(slot) - msg.used
		if msg.used > 0 && room < min(f.size()-f.done, slotBytes) {
			return msg // the frame begins with the next message, whether it will be cut or not
		}
		if f.gathers(use) {
			msg.used += f.header(slot[msg.used:])
			at := f.done - wire.HeaderBytes
			n := min(f.length-at, len(slot)-msg.used)
			msg.gather = f.payload.Slice(uint64(at), uint64(n))
			f.done += n
			if f.done == f.size() {
				msg.end(o.pop())
			}
			return msg
		}
		msg.used += f.copy(slot[msg.used:], m)
		if f.done < f.size() {
			return msg
		}
		msg.end(o.pop())
	}
	return msg
}

// gathers reports whether f's payload is gathered.
func (f *frame) gathers(use func(link.Ref) bool) bool {
	if f.method == undecided {
		f.method = copied
		if f.payload.Region != 0 && f.length >= gatherMin && use(f.payload.Slice(0, uint64(f.length))) {
			f.method = gathered
		}
	}
	return f.method == gathered
}

// header copies the rest of the header.
func (f *frame) header(to []byte) int {
	if f.done >= wire.HeaderBytes {
		return 0
	}
	n := copy(to, f.head[f.done:])
	f.done += n
	return n
}

// copy copies as much of header and payload as fits.
func (f *frame) copy(to []byte, m link.Memory) int {
	n := f.header(to)
	if at := f.done - wire.HeaderBytes; at >= 0 && at < f.length {
		k := min(f.length-at, len(to)-n)
		if f.payload.Region == 0 {
			copy(to[n:], f.inline[at:at+k])
		} else {
			copy(to[n:], m.Bytes(f.payload.Slice(uint64(at), uint64(k))))
		}
		n += k
		f.done += k
	}
	return n
}
