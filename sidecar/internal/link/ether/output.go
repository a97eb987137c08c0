package ether

import "github.com/outrigger-hpc/outrigger/api/memory"

// output collects sealed packets of a turn into batches, so that one system call sends the
// packets to many peers.
type output struct {
	carrier carrier
	stats   *Stats
	closed  bool   // the carrier is closed, or about to be
	scratch []byte // the packets
	batches []batch
	first   int               // index of the first batch that the carrier has not accepted
	one     []byte            // an echo
	body    [prefixBytes]byte // of an acknowledgement or echo
}

// scratchBytes is the size of the packets that are collected before they are sent.
const scratchBytes = 256 << 10

func newOutput(stats *Stats) output {
	return output{stats: stats, scratch: make([]byte, 0, scratchBytes), one: make([]byte, 0, headBytes+echoBytes+tagBytes)}
}

// full reports whether the carrier has not accepted all.
func (o *output) full() bool { return o.first < len(o.batches) }

// add seals a packet into the last batch, or into a new one. It returns false if the
// carrier is full.
func (o *output) add(c *conn, kind byte, body []byte) bool {
	size := headBytes + len(body) + tagBytes
	if cap(o.scratch)-len(o.scratch) < size && !o.offer() {
		return false
	}
	start := len(o.scratch)
	o.scratch = c.tx.seal(o.scratch, kind, c.remote, body)
	o.stats.PacketsOut++
	o.stats.CarrierOut += uint64(size)
	if n := len(o.batches); n > 0 {
		b := &o.batches[n-1]
		// All packets of a batch but the last have one size.
		if b.to == &c.to && len(b.data)%b.size == 0 && size <= b.size && len(b.data) < batchPackets*b.size && len(b.data)+size <= batchBytes {
			b.data = o.scratch[start-len(b.data) : len(o.scratch)]
			return true
		}
	}
	o.batches = append(o.batches, batch{to: &c.to, data: o.scratch[start:], size: size})
	return true
}

// offer passes the batches to the carrier. It returns false if some are left.
func (o *output) offer() bool {
	if o.full() {
		o.first += o.carrier.send(o.batches[o.first:])
	}
	if o.full() {
		return false
	}
	clear(o.batches) // otherwise connections that have ended stay in memory
	o.scratch, o.batches, o.first = o.scratch[:0], o.batches[:0], 0
	return true
}

// bodies is the memory of packets that are not acknowledged, and of those that wait at the
// receiver. Both are bounded for all connections together, so that a peer, or many that do
// not read, use no more than the memory formula knows.
type bodies struct {
	out, in store
	windows [][]outPacket        // free, of windowFirst packets
	spare   []*[windowMax][]byte // free
}

// sparesMax bounds the free memory of windows and slots.
const sparesMax = 64

// larger returns memory for twice as many packets as ring has, with those from base to end.
func (b *bodies) larger(ring []outPacket, base, end uint64) []outPacket {
	if n := len(b.windows); len(ring) == 0 && n > 0 {
		w := b.windows[n-1]
		b.windows = b.windows[:n-1]
		return w
	}
	w := make([]outPacket, max(2*len(ring), windowFirst))
	for n := base; n < end; n++ {
		w[n&uint64(len(w)-1)] = ring[n&uint64(len(ring)-1)]
	}
	return w
}

// keepWindow retains memory for packets, if it is small.
func (b *bodies) keepWindow(ring []outPacket) {
	if len(ring) == windowFirst && len(b.windows) < sparesMax {
		b.windows = append(b.windows, ring)
	}
}

// slots returns memory for the packets that wait of a direction.
func (b *bodies) slots() *[windowMax][]byte {
	if n := len(b.spare); n > 0 {
		s := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return s
	}
	return new([windowMax][]byte)
}

// store is a bounded number of bytes in bodies of two sizes.
type store struct {
	small, large [][]byte // free
	used         int      // bytes of the bodies that are not free
}

// bodyFirst is the size of small bodies: that of the MTU 1500. Large ones have bodyMost.
const bodyFirst = 1420

// storeSpare bounds the free bodies of a size.
const storeSpare = 256

// full reports whether no more bodies should be used.
func (s *store) full() bool { return s.used >= memory.EtherStore }

// get returns an empty body with room for n bytes.
func (s *store) get(n int) []byte {
	list, size := &s.small, bodyFirst
	if n > bodyFirst {
		list, size = &s.large, max(n, bodyMost)
	}
	var b []byte
	if i := len(*list) - 1; i >= 0 && size <= bodyMost {
		b, *list = (*list)[i], (*list)[:i]
	} else {
		b = make([]byte, 0, size)
	}
	s.used += cap(b)
	return b
}

// put releases a body.
func (s *store) put(b []byte) {
	s.used -= cap(b)
	switch {
	case cap(b) == bodyFirst && len(s.small) < storeSpare:
		s.small = append(s.small, b[:0])
	case cap(b) == bodyMost && len(s.large) < storeSpare:
		s.large = append(s.large, b[:0])
	}
}
