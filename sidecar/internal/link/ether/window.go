package ether

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// The stream of packets of one direction. Each packet has a number; the receiver
// acknowledges all packets before a number, and those of the 64 after it that have arrived
// (selective acknowledgement, as in RFC 2018). A packet is sent again when three later ones
// have arrived (RFC 5681, 3.2; RFC 6675), or when the time for its acknowledgement is over
// (RFC 6298). Times are in nanoseconds.

// Limits of a direction.
const (
	windowMax   = 256       // packets that are under way, and packets that wait at the receiver
	queueMax    = 1024      // packets that are not acknowledged or were never sent
	queueBytes  = 2 << 20   // of memory of their bodies: as much as a TCP socket takes for a peer that does not read
	queueLeast  = 1         // packet for which there is memory even if other peers use all
	limitFirst  = 32        // packets that a receiver accepts before it has said more
	bytesMax    = 512 << 10 // bodies that wait at the receiver
	windowFirst = 16        // congestion window of a new connection, in packets (RFC 6928 allows 10 over the Internet)
	windowLeast = 2
	lateAfter   = 3 // a packet is lost when this number of later ones has arrived
	rtoLeast    = int64(10 * time.Millisecond)
	rtoFirst    = int64(50 * time.Millisecond)
	rtoMost     = int64(500 * time.Millisecond) // so that 10 s of silence are 20 attempts
	ackDelay    = int64(4 * time.Millisecond)   // of an acknowledgement without frames to carry it
	ackEvery    = 8                             // packets that arrive without an acknowledgement
	prefixBytes = 24                            // of a body: number, acknowledgement, limit
)

// The prefix of the body of kindStream and kindAck: 0 number u32, 4 acknowledged u32, 8
// bitmap u64, 16 limit u32, 20 largest body of the sender u32. Numbers are modulo 2^32.
func putPrefix(b []byte, number, acked, bitmap, limit uint64, most int) {
	le := binary.LittleEndian
	le.PutUint32(b, uint32(number))
	le.PutUint32(b[4:], uint32(acked))
	le.PutUint64(b[8:], bitmap)
	le.PutUint32(b[16:], uint32(limit))
	le.PutUint32(b[20:], uint32(most))
}

// widen returns the number next to near whose low 32 bits are low.
func widen(near uint64, low uint32) uint64 { return near + uint64(int64(int32(low-uint32(near)))) }

// outPacket is a packet that is not acknowledged.
type outPacket struct {
	body  []byte // prefix and frames
	at    int64  // when it was sent last
	sends uint8
	here  bool // the receiver has it
	lost  bool // it is to be sent again
	timed bool // its loss was assumed by time: the window bounds its repetition
}

// sender is the sending side of a direction.
type sender struct {
	packets []outPacket // a ring of a power of two; nil while all packets are acknowledged
	used    int         // bytes of memory of their bodies
	base    uint64      // first packet that is not acknowledged
	next    uint64      // first packet that was never sent
	end     uint64      // packets before it have frames; end-1 may still take more if it was never sent
	limit   uint64      // the receiver has no room for this packet
	lost    int         // number of packets that are to be sent again
	here    int         // number of those from base on that the receiver has
	probe   uint64      // packet that the first time-out has sent again; 0: none
	probed  int64       // when that was

	window  float64 // congestion window in packets
	slow    float64 // from this window on it grows by one packet a round trip
	recover uint64  // losses of packets before it have already reduced the window
	rtt     int64   // smoothed round trip; 0: unknown
	vary    int64   // its mean deviation
	backoff int64   // factor of the time-out; 0 is 1
	query   bool    // the receiver is to be asked for a larger limit
	asked   int64   // when that was done last
	heard   int64   // when an acknowledgement of something new came, or the first packet after quiet was sent

	stats *Stats
}

func (s *sender) init(stats *Stats) {
	s.base, s.next, s.end, s.limit = 1, 1, 1, 1+limitFirst
	s.window, s.slow, s.stats = windowFirst, windowMax, stats
}

func (s *sender) at(number uint64) *outPacket { return &s.packets[number&uint64(len(s.packets)-1)] }

// idle reports whether all packets are acknowledged.
func (s *sender) idle() bool { return s.base == s.end }

// open returns the packet that takes the next n bytes of frames, or nil if there is no
// room. A body has at most bodyMax bytes.
func (s *sender) open(n, bodyMax int, free *bodies) *outPacket {
	if s.end > s.next {
		if p := s.at(s.end - 1); len(p.body)+n <= bodyMax {
			return p
		}
	}
	n64 := s.end - s.base
	if n64 == queueMax || s.used >= queueBytes || n64 >= queueLeast && free.out.full() {
		return nil
	}
	if n64 == uint64(len(s.packets)) {
		s.packets = free.larger(s.packets, s.base, s.end)
	}
	p := s.at(s.end)
	*p = outPacket{body: free.out.get(bodyMax)[:prefixBytes]}
	s.used += cap(p.body)
	s.end++
	return p
}

// due returns the number of the next packet to send, a lost one first; false: there is none,
// or as many are under way as the window and the receiver allow. The first packet is always
// allowed, so that something is under way.
func (s *sender) due() (uint64, bool) {
	if s.lost > 0 {
		for n := s.base; n < s.next; n++ {
			if p := s.at(n); p.lost {
				return n, !p.timed || n == s.base || s.flight() < int(s.window)
			}
		}
	}
	return s.next, s.next < s.end && s.next < s.limit && s.next-s.base < uint64(s.window)
}

// flight returns the number of packets that are under way (RFC 6675, pipe).
func (s *sender) flight() int { return int(s.next-s.base) - s.here - s.lost }

// sent records that a packet was sent.
func (s *sender) sent(number uint64, now int64) {
	p := s.at(number)
	p.found(s)
	if number == s.next {
		if s.base == s.next {
			s.heard = now
		}
		s.next++
	}
	p.at = now
	p.sends = min(p.sends+1, 200)
}

// acknowledged handles an acknowledgement, and frees the bodies that are not needed any
// more. It returns false if the acknowledgement is of packets that were never sent.
func (s *sender) acknowledged(acked uint32, bitmap uint64, limit uint32, now int64, free *bodies) bool {
	to := widen(s.base, acked)
	if to > s.next {
		return false
	}
	fresh, sent := 0, int64(0)
	for ; s.base < to; s.base++ {
		fresh += s.arrived(s.base, &sent)
		s.here--
		s.free(s.at(s.base), free)
	}
	s.rest(free)
	if to < s.base {
		return true // a late acknowledgement
	}
	top := to
	for b := bitmap; b != 0; b &= b - 1 {
		n := to + 1 + uint64(bits.TrailingZeros64(b))
		if n >= s.next {
			return false
		}
		fresh += s.arrived(n, &sent)
		top = n
	}
	if sent > 0 {
		s.measure(now - sent)
	}
	s.limit = max(s.limit, min(widen(s.limit, limit), s.next+2*windowMax))
	if fresh > 0 {
		s.heard, s.backoff = now, 0
		s.grow(fresh)
		s.answered(bitmap, now)
	}
	s.findLost(top, now)
	return true
}

// answered continues after the acknowledgement of something new, which answers a probe if
// there is one. If only the probe has arrived, all that was sent before it is lost, and slow
// start goes on behind it; if more has, the time was over too early (RFC 5682).
func (s *sender) answered(bitmap uint64, now int64) {
	if s.probe != 0 && s.base == s.probe+1 && bitmap == 0 && now-s.probed >= s.rtt/2 {
		s.goBack(s.probed)
		s.window = windowLeast // the probe was the first packet of slow start
	}
	if s.base > s.probe {
		s.probe = 0
	}
}

// goBack takes all packets that were sent before a time for lost, and begins with a window of
// one packet (RFC 5681, 3.1).
func (s *sender) goBack(before int64) {
	for n := s.base; n < s.next; n++ {
		if p := s.at(n); !p.here && !p.lost && p.at < before {
			p.timed = true
			s.again(n)
		}
	}
	s.halve(s.base)
	s.window = 1
}

// free releases the body of a packet.
func (s *sender) free(p *outPacket, free *bodies) {
	s.used -= cap(p.body)
	free.out.put(p.body)
	p.body = nil
}

// drop releases all packets.
func (s *sender) drop(free *bodies) {
	for ; s.base < s.end; s.base++ {
		s.free(s.at(s.base), free)
	}
	s.next, s.lost, s.here, s.probe = s.end, 0, 0, 0
	s.rest(free)
}

// rest gives the memory of the window back if it is empty.
func (s *sender) rest(free *bodies) {
	if s.idle() && s.packets != nil {
		free.keepWindow(s.packets)
		s.packets = nil
	}
}

// arrived records that the receiver has a packet, and returns 1 if that is new. It sets sent
// to the time at which the packet was sent, if that is known: the last packet of an
// acknowledgement is its sample of the round trip (RFC 9002, 5.1).
func (s *sender) arrived(number uint64, sent *int64) int {
	p := s.at(number)
	if p.here {
		return 0
	}
	p.here = true
	s.here++
	p.found(s)
	if p.sends == 1 { // otherwise it is unknown which of the packets has arrived (Karn)
		*sent = p.at
	}
	return 1
}

// measure adds a round trip to the estimate (RFC 6298, 2).
func (s *sender) measure(rtt int64) {
	if s.rtt == 0 {
		s.rtt, s.vary = rtt, rtt/2
		return
	}
	s.vary += (max(s.rtt-rtt, rtt-s.rtt) - s.vary) / 4
	s.rtt += (rtt - s.rtt) / 8
}

// grow enlarges the window for packets that have arrived: by each of them until the first
// loss, then by one in a round trip. A window that is not used does not grow.
func (s *sender) grow(arrived int) {
	if float64(s.next-s.base)+float64(arrived) < s.window/2 {
		return
	}
	if s.window < s.slow {
		s.window += float64(arrived)
	} else {
		s.window += float64(arrived) / s.window
	}
	s.window = min(s.window, windowMax)
}

// findLost marks packets as lost that have not arrived while three later ones have; top is
// the last one that has.
func (s *sender) findLost(top uint64, now int64) {
	for n := s.base; n+lateAfter <= top; n++ {
		p := s.at(n)
		// A packet that was just sent again has not had its round trip.
		if p.here || p.lost || p.sends > 1 && now-p.at < max(s.rtt, rtoLeast/4) {
			continue
		}
		s.lose(n)
	}
}

// found records that a packet is not to be sent again.
func (p *outPacket) found(s *sender) {
	if p.lost {
		p.lost, p.timed = false, false
		s.lost--
	}
}

// again marks a packet as one to send again.
func (s *sender) again(number uint64) {
	s.at(number).lost = true
	s.lost++
	s.stats.Lost++
}

// lose marks a packet as lost, and halves the window, once for all losses of a round trip.
func (s *sender) lose(number uint64) {
	s.again(number)
	s.halve(number)
}

// halve halves the window for the loss of a packet, if it was not halved since that was sent.
func (s *sender) halve(number uint64) {
	if number >= s.recover {
		s.slow = max(s.window/2, windowLeast)
		s.window, s.recover = s.slow, s.next
	}
}

// timeout returns when the first packet has to be sent again, or the receiver has to be asked
// for a larger limit, whose announcement may be lost; 0: never.
func (s *sender) timeout() int64 {
	rto := rtoFirst
	if s.rtt > 0 {
		rto = max(s.rtt+4*s.vary, rtoLeast)
	}
	rto = min(rto<<min(s.backoff, 7), rtoMost)
	switch {
	case s.base < s.next:
		return s.at(s.base).at + rto
	case s.next < s.end && s.next >= s.limit:
		return max(s.asked, s.heard) + rto
	}
	return 0
}

// tick sends the first packet again if its time is over. It returns false if nothing has
// been acknowledged for longer than silence.
func (s *sender) tick(now, silence int64) bool {
	at := s.timeout()
	if at == 0 || now < at {
		return true
	}
	if s.base == s.next {
		s.query, s.asked = true, now
		s.backoff++
		return true
	}
	if now-s.heard > silence {
		return false
	}
	if p := s.at(s.base); p.lost || p.here {
		return true
	}
	// The first time may be over because a machine has paused. The packet asks for an
	// acknowledgement then, which shows what is lost (RFC 9002, 6.2).
	if s.backoff == 0 {
		s.probe, s.probed = s.base, now
		s.again(s.base)
	} else {
		s.probe = 0
		s.goBack(now)
	}
	s.backoff++
	return true
}

// receiver is the receiving side of a direction. Packets that cannot be handed over yet
// wait in slots: an earlier one is missing, or the payload of a frame is.
type receiver struct {
	slots *[windowMax][]byte // nil: no packet waits
	end   uint64             // no packet from this one on was allowed
	next  uint64             // the packet that is handed over next; if slots has it, from offset on
	off   int                // offset of the next frame in it
	known uint64             // all packets before it have arrived; at least next
	owed  int                // packets since the last acknowledgement
	since int64              // when the first of them arrived
	said  uint64             // limit in the last acknowledgement
	hurry bool               // acknowledge now
	grew  bool               // packets that waited were handed over since the last acknowledgement
	kept  int                // bytes in slots
	count int                // packets in slots
}

func (r *receiver) init() { r.next, r.known, r.end, r.said = 1, 1, 1+limitFirst, 1+limitFirst }

// at returns a packet that waits, or nil.
func (r *receiver) at(number uint64) []byte {
	if r.slots == nil {
		return nil
	}
	return r.slots[number%windowMax]
}

// keep makes a packet wait.
func (r *receiver) keep(number uint64, body []byte, free *bodies) {
	if r.slots == nil {
		r.slots = free.slots()
	}
	r.slots[number%windowMax] = body
	r.kept += len(body)
	r.count++
}

// drop releases the packet whose turn it is, if it waits, and passes on to the next one.
func (r *receiver) drop(free *bodies) {
	if body := r.at(r.next); body != nil {
		r.grew = true
		r.slots[r.next%windowMax] = nil
		r.kept -= len(body)
		r.count--
		free.in.put(body)
	}
	r.rest(free)
	r.off = 0
	r.next++
}

// rest gives the memory of the slots back if no packet waits.
func (r *receiver) rest(free *bodies) {
	if r.count == 0 && r.slots != nil {
		if len(free.spare) < sparesMax {
			free.spare = append(free.spare, r.slots)
		}
		r.slots = nil
	}
}

// accept reports whether a packet is new and within the window.
func (r *receiver) accept(number uint64, now int64) bool {
	if r.owed == 0 {
		r.since = now
	}
	r.owed++
	if number < r.known || number >= r.end || r.at(number) != nil {
		r.hurry = true // the acknowledgement was lost, or the sender believes so
		return false
	}
	if number != r.known {
		r.hurry = true // so that the sender learns of the gap
	}
	return true
}

// advance updates known after a packet was handed over or kept.
func (r *receiver) advance() {
	r.known = max(r.known, r.next)
	for r.known < r.next+windowMax && r.at(r.known) != nil {
		r.known++
	}
}

// bitmap returns which of the 64 packets after the first missing one have arrived.
func (r *receiver) bitmap() (b uint64) {
	for i := range uint64(64) {
		if n := r.known + 1 + i; n < r.next+windowMax && r.at(n) != nil {
			b |= 1 << i
		}
	}
	return b
}

// limit returns the first packet for which there is no room, if packets have at most most
// bytes. It never moves back: what was allowed is kept.
func (r *receiver) limit(most int) uint64 {
	if most == 0 { // the peer has not said it yet
		most = bodyMost
	}
	room := uint64(max(bytesMax-r.kept, 0) / max(most, bodyFirst))
	r.end = max(r.end, min(r.next+windowMax, r.known+room))
	return r.end
}

// due returns when an acknowledgement has to be sent without frames; 0: none.
func (r *receiver) due() int64 {
	switch {
	case r.hurry || r.owed >= ackEvery || r.said < r.known+limitFirst/2 && r.grew:
		return 1
	case r.owed > 0:
		return r.since + ackDelay
	}
	return 0
}

// told records that an acknowledgement was sent.
func (r *receiver) told() { r.owed, r.hurry, r.grew, r.said = 0, false, false, r.end }
