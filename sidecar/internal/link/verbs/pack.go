package verbs

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// slotBytes is the most that one message carries: a frame with a payload of 4 KiB
// goes in one, as it does through the buffer of tcp.
const (
	wholeMax  = 4 << 10
	slotBytes = wire.HeaderBytes + wholeMax
)

// Limits of what waits to be sent to a peer.
const (
	waitMax  = 64        // frames
	aheadMax = 256 << 10 // bytes of payloads
	// From this on a payload may go from where it is.
	gatherMin = 128
)

// outgoing is the frames that a connection has taken and not sent.
type outgoing struct {
	queue [waitMax]frame
	first uint32
	count uint32
	bytes int
}

// frame is a copy of what link.Frame says is to be copied.
type frame struct {
	head    [wire.HeaderBytes]byte
	inline  [link.InlineMax]byte
	payload link.Ref
	seq     uint64
	length  int // of the payload
	done    int // bytes of header and payload that are in messages
	way     way
}

// way is how a frame's payload goes, decided when it is first packed.
type way uint8

const (
	undecided way = iota
	copied
	gathered
)

func (f *frame) size() int { return wire.HeaderBytes + f.length }

func (o *outgoing) full() bool { return o.count == waitMax || o.bytes >= aheadMax }

func (o *outgoing) add(f *link.Frame) {
	w := &o.queue[(o.first+o.count)%waitMax]
	f.Head.Encode(&w.head)
	w.seq, w.length, w.done, w.payload, w.way = f.Head.Seq, int(f.Head.Length), 0, f.Payload, undecided
	if f.Payload.Region == 0 {
		w.payload = link.Ref{}
		copy(w.inline[:], f.Inline[:w.length])
	}
	o.count++
	o.bytes += w.length
}

// oldest is the number of the first frame with a payload in memory; 0: there is
// none. What is in messages already is the device's: it has its registration.
func (o *outgoing) oldest() uint64 {
	for i := range o.count {
		if f := &o.queue[(o.first+i)%waitMax]; f.payload.Region != 0 {
			return f.seq
		}
	}
	return 0
}

func (o *outgoing) next() *frame { return &o.queue[o.first] }

// drop forgets the first frame, all of which is in messages, and returns its number.
func (o *outgoing) drop() uint64 {
	f := o.next()
	o.bytes -= f.length
	o.first = (o.first + 1) % waitMax
	o.count--
	return f.seq
}

// message is what fill has put together: used bytes of the slot, and then a range
// of a payload where it lies.
type message struct {
	used   int
	gather link.Ref
	last   uint64 // number of the last frame that ends in it; 0: none
}

// end notes that a frame ends in the message; those without a number are not repeated.
func (m *message) end(seq uint64) { m.last = max(m.last, seq) }

// fill takes frames out of o into a slot. known says, once for each frame, whether
// its payload goes from where it is. A frame that fits a message is never cut. Unlike on a stream of bytes
// there is no padding between frames.
func (o *outgoing) fill(slot []byte, m link.Memory, known func(link.Ref) bool) (msg message) {
	for o.count > 0 {
		f := o.next()
		room := len(slot) - msg.used
		if msg.used > 0 && room < min(f.size()-f.done, slotBytes) {
			return msg // cut or not, it begins with the next one
		}
		if f.gathers(known) {
			msg.used += f.header(slot[msg.used:])
			at := f.done - wire.HeaderBytes
			n := min(f.length-at, len(slot)-msg.used)
			msg.gather = f.payload.Slice(uint64(at), uint64(n))
			f.done += n
			if f.done == f.size() {
				msg.end(o.drop())
			}
			return msg
		}
		msg.used += f.copy(slot[msg.used:], m)
		if f.done < f.size() {
			return msg
		}
		msg.end(o.drop())
	}
	return msg
}

// gathers reports whether f's payload goes from where it is.
func (f *frame) gathers(known func(link.Ref) bool) bool {
	if f.way == undecided {
		f.way = copied
		if f.payload.Region != 0 && f.length >= gatherMin && known(f.payload.Slice(0, uint64(f.length))) {
			f.way = gathered
		}
	}
	return f.way == gathered
}

// header copies what is left of the header.
func (f *frame) header(to []byte) int {
	if f.done >= wire.HeaderBytes {
		return 0
	}
	n := copy(to, f.head[f.done:])
	f.done += n
	return n
}

// copy copies what fits of header and payload.
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
