package ether

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Poll hands over what has arrived, sends what is due, and looks after timers and sockets.
func (l *Link) Poll(sink link.Sink) int {
	work := l.cfg.Stream.Poll(sink)
	if l.abandons.Load() {
		l.releaseAbandoned()
	}
	l.budget = payloadBudget
	quiet := len(l.list)+len(l.buried) == 0 && l.pendingCount.Load() == 0
	if l.polls++; l.polls >= socketInterval {
		l.polls, l.checkSockets = 0, true
	}
	if quiet && !l.checkSockets {
		return work
	}
	l.now = l.cfg.Clock()
	work += l.receive(sink)
	if len(l.fresh)+len(l.readers) > 0 {
		work += l.resume(sink)
	}
	if len(l.reads.forgotten) > 0 {
		work += l.reportForgotten(sink)
	}
	if l.checkSockets || l.sleeper.full || l.waits() {
		l.checkSockets = false
		work += l.pollSockets(sink)
	}
	if l.next != 0 && l.now >= l.next {
		l.tick() // before asks: it may give credit back
	}
	if len(l.reads.askers) > 0 {
		l.ask()
	}
	l.commit()
	if l.failed > 0 {
		work += l.reportFailed(sink)
	}
	return work
}

// payloadBudget is how many bytes of payloads of all connections a Poll reads, as over TCP.
const payloadBudget = 512 << 10

// releaseAbandoned releases what came for connections that were not made.
func (l *Link) releaseAbandoned() {
	l.mu.Lock()
	list := l.abandoned
	l.abandoned = nil
	l.abandons.Store(false)
	l.mu.Unlock()
	for _, c := range list {
		c.close()
	}
}

// receive handles the packets that have arrived.
func (l *Link) receive(sink link.Sink) (work int) { return l.receiveMost(sink, receiveCalls) }

// receiveMost handles the packets that at most calls calls of the carrier return.
func (l *Link) receiveMost(sink link.Sink, calls int) (work int) {
	for range calls {
		list, more := l.out.carrier.receive()
		for i := range list {
			a := &list[i]
			for data := a.data; len(data) > 0; {
				n := min(a.size, len(data))
				l.packet(data[:n:n], &a.from, sink)
				data = data[n:]
				work++
			}
		}
		if !more {
			break
		}
	}
	return work
}

// packet handles one packet, whose memory it overwrites.
func (l *Link) packet(b []byte, from *address, sink link.Sink) {
	l.stats.PacketsIn++
	if !whole(b) {
		l.stats.Odd++
		return
	}
	if c := l.table[sessionOf(b)]; c != nil {
		if body := l.authentic(c, b); body != nil {
			l.stats.CarrierIn += uint64(len(b))
			l.authenticated(c, kindOf(b), body, from, sink)
		}
		return
	}
	if l.pendingCount.Load() == 0 || !l.pendingPacket(b, from) {
		l.stats.Odd++
	}
}

// authentic returns the body of a packet, or nil if it is forged or a copy.
func (l *Link) authentic(c *conn, b []byte) []byte {
	counter := counterOf(b)
	if c.replay.seen(counter) {
		l.stats.Replayed++
		return nil
	}
	body, err := c.rx.open(b)
	if err != nil {
		l.stats.Forged++
		return nil
	}
	c.replay.add(counter)
	return body
}

// authenticated handles a packet of a connection. Kinds of a later release are ignored.
func (l *Link) authenticated(c *conn, kind byte, body []byte, from *address, sink link.Sink) {
	switch {
	case c.gone:
		if kind != kindEnd {
			l.tellEnd(c)
		}
		return
	case kind == kindEnd:
		c.fail(link.Broken(errEnd))
		return
	}
	switch kind {
	case kindStream, kindAck:
		c.packet(kind, body, sink)
	case kindAsk:
		c.onAsk(body)
	case kindPart:
		c.onPart(body, sink)
	case kindDeny:
		c.onDeny(body, sink)
	case kindProbe: // the peer has not got the echo
		l.echo(c, len(body), from)
	}
}

// resume hands over what waited for Join or for a payload.
func (l *Link) resume(sink link.Sink) (work int) {
	for _, c := range l.fresh {
		if !c.gone && c.ending == 0 {
			work += c.resume(sink)
			c.touch()
		}
	}
	l.fresh = l.fresh[:0]
	list := l.readers
	l.readers = l.spare[:0]
	for i, c := range list {
		if l.budget <= 0 { // the others come first next time
			l.readers = slices.Insert(l.readers, 0, list[i:]...)
			work++
			break
		}
		c.reads = false
		if c.gone || c.err != nil || c.pipe.dst == nil {
			continue
		}
		if work += c.readPayload(sink); c.pipe.dst == nil && !c.gone {
			work += c.resume(sink)
			c.touch()
		}
	}
	l.spare = list
	return work
}

// waits reports whether output waits for a socket.
func (l *Link) waits() bool {
	for _, c := range l.dirty {
		if c.pipe.waiting {
			return true
		}
	}
	return false
}

// pollSockets handles the events of the sockets.
func (l *Link) pollSockets(sink link.Sink) (work int) {
	l.setEvents()
	n, err := unix.EpollWait(l.sleeper.epoll, l.sleeper.events[:], 0)
	if err != nil {
		return 0 // EINTR: next time
	}
	for _, ev := range l.sleeper.events[:n] {
		if ev.Fd == notConn {
			if ev.Events&unix.EPOLLERR != 0 {
				l.clearError()
			}
			if l.sleeper.full {
				work++ // there may be room for packets
			}
			continue
		}
		c := l.table[uint32(ev.Fd)]
		if c == nil || c.gone {
			continue
		}
		if ev.Events&unix.EPOLLOUT != 0 {
			work++
			c.flush()
		}
		if ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			work++
			l.hangUp(c, sink)
		}
	}
	return work
}

// hangUp ends a connection whose socket has ended, after the packets that had arrived and
// the payloads in the socket are handed over.
func (l *Link) hangUp(c *conn, sink link.Sink) {
	if c.ending != 0 {
		l.remove(c)
		return
	}
	l.receiveMost(sink, max(receiveCalls, l.out.carrier.full())) // packets of other peers may be in front
	if c.pipe.dst != nil && c.lives() {
		l.budget = max(l.budget, payloadBudget/8) // what is in the socket belongs to frames that are acknowledged
		if c.readPayload(sink); c.pipe.dst == nil {
			c.resume(sink)
		}
	}
	if c.lives() && c.pipe.dst == nil {
		c.fail(link.Broken(errEnd))
	}
}

// flush writes payloads to the socket.
func (c *conn) flush() {
	if err := c.pipe.flush(); err != nil {
		c.fail(err)
	}
	if c.pipe.waiting {
		c.changed()
	}
}

// tick handles the timers that are over.
func (l *Link) tick() {
	l.next = 0
	l.exhume()
	list := l.timed
	kept := list[:0]
	for _, c := range list {
		if c.gone {
			continue
		}
		switch {
		case c.ending != 0 && (l.now >= c.ending || c.snd.idle() && c.rcv.owed == 0):
			l.remove(c)
			continue
		case !c.snd.tick(l.now, l.cfg.Silence) || !c.tickPulls(l.now):
			c.fail(errSilent)
		}
		if at := c.deadline(); at != 0 || c.snd.lost > 0 {
			l.wakeAt(max(at, 1))
			kept = append(kept, c)
			c.mark()
			continue
		}
		c.timed = false
	}
	l.timed = kept
}

// mark makes the next commit send what is due.
func (c *conn) mark() {
	if !c.dirty && !c.gone {
		c.dirty = true
		c.l.dirty = append(c.l.dirty, c)
	}
}

func (l *Link) wakeAt(at int64) {
	if l.next == 0 || at < l.next {
		l.next = at
	}
}

// commit sends the packets and payloads of the connections that have any.
func (l *Link) commit() {
	if !l.out.offer() || len(l.dirty) == 0 {
		return
	}
	l.now = l.cfg.Clock() // the engine may have slept since the last Poll
	list := l.dirty
	kept := list[:0]
	for i, c := range list {
		if !l.pack(c) { // the carrier is full
			kept = append(append(kept, list[i+1:]...), c) // the others come first next time
			break
		}
		c.dirty = c.pipe.waiting && !c.gone
		if c.dirty {
			kept = append(kept, c)
		}
	}
	l.dirty = kept
	l.out.offer()
}

// pack makes the packets of c that are due, and writes its payloads. It returns false if
// the carrier is full.
func (l *Link) pack(c *conn) bool {
	if c.gone || c.err != nil {
		return true
	}
	sent := false
	for {
		n, ok := c.snd.due()
		if !ok {
			break
		}
		if !l.out.add(c, kindStream, c.prefixed(n)) {
			return false
		}
		c.snd.sent(n, l.now)
		sent = true
	}
	if due := c.rcv.due(); c.snd.query || !sent && due != 0 && l.now >= due && c.joined {
		query := uint64(0)
		if c.snd.query {
			query = 1
		}
		putPrefix(l.out.body[:], query, c.rcv.known, c.rcv.bitmap(), c.rcv.limit(int(c.pulls.peerMax)), c.bodyMax)
		if !l.out.add(c, kindAck, l.out.body[:]) {
			return false
		}
		c.snd.query, sent = false, true
	}
	if sent {
		c.rcv.told()
	}
	if len(c.pulls.serving) > 0 && !l.answer(c) { // acknowledgements do not wait behind answers
		return false
	}
	if c.tx.counter > counterMax {
		c.fail(errKeyUsed)
	}
	if c.pipe.pending() && !c.pipe.waiting {
		c.flush()
	}
	if at := c.deadline(); at != 0 {
		c.time()
		l.wakeAt(at)
	}
	return true
}

// prefixed returns the body of a packet with the acknowledgement of now.
func (c *conn) prefixed(number uint64) []byte {
	body := c.snd.at(number).body
	putPrefix(body, number, c.rcv.known, c.rcv.bitmap(), c.rcv.limit(int(c.pulls.peerMax)), c.bodyMax)
	return body
}

// reportFailed ends the connections that have an error.
func (l *Link) reportFailed(sink link.Sink) (work int) {
	for i := 0; i < len(l.list) && l.failed > 0; i++ {
		c := l.list[i]
		if c.err == nil || c.ending != 0 || !c.joined {
			continue
		}
		l.failed--
		l.conns[c.peer] = nil
		err, peer := c.err, c.peer
		for _, token := range c.endPulls() {
			sink.Done(peer, token, link.Broken(err))
		}
		l.bury(c)
		sink.Down(peer, err)
		work++
		i = -1 // Down may have changed the list
	}
	return work
}
