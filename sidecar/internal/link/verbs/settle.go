package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A message that this side's device has acknowledged counts as delivered: the peer's link
// has reported it, and the peer may have reused its memory (link.Delivery). But a device
// drops the completions of a queue pair that is destroyed. So before that
//
//  1. the queue pair is moved to the error state, in which the device accepts and
//     acknowledges nothing more (InfiniBand Architecture Specification, vol. 1, 10.3.1);
//  2. the link waits for every posted receive: it was filled before, or is flushed
//     (10.3.1, C10-42: all outstanding ones complete). If receives are shared, the
//     device reports when the queue pair has taken its last one (Last WQE Reached,
//     11.6.3.4);
//  3. all completions in the queue at that time are handled (passage): messages that
//     arrived are handed over, and shared receives are posted again.
//
// A turn does not wait for any of this: it executes one step, and the next turn
// continues. Completions of other connections arrive all the time, and the time that a
// device needs is not bounded.

// endsPerTurn is how many connections a turn moves to the error state, and how many it
// destroys: each takes the kernel some hundred microseconds, and all connections may end
// at once.
const endsPerTurn = 4

// passage is a position in the sequence of completions. It is passed when as many
// completions have been handled as the queue held, or when a later poll has emptied the
// queue.
type passage struct{ handled, polls uint64 }

func (l *Link) markQueue() passage {
	return passage{l.cq.handled + uint64(len(l.cq.stash)+l.nic.queueDepth()), l.stats.Polls}
}

func (l *Link) passed(p passage) bool { return l.cq.emptyAt > p.polls || l.cq.handled >= p.handled }

// quiet executes the next step of c's end, and reports whether no more messages arrive on
// c and all that arrived are handled.
func (l *Link) quiet(c *conn, within time.Duration) bool {
	if l.lost != nil {
		return true
	}
	if !c.marked {
		if c.enterError() && l.sharing.receives != nil && !l.over(c, within) {
			return false
		}
		c.marked, c.mark = true, l.markQueue()
	}
	return l.passed(c.mark)
}

// settles does what quiet does, for a connection that is not closed yet: its own receives must
// have completed, too.
func (l *Link) settles(c *conn) bool {
	c.settled = c.settled || l.quiet(c, lastTimeout) && (c.open <= 0 || c.pairGone || l.lost != nil)
	return c.settled
}

// enterError moves the queue pair to the error state. It returns false if the pair does
// not exist any more.
func (c *conn) enterError() bool {
	if c.errorSince.IsZero() {
		c.errorSince = time.Now()
		c.pairGone = c.pair.fail() != nil
	}
	return !c.pairGone
}

// ending reports whether c has failed and was moved to the error state.
func (c *conn) ending() bool { return c.err != nil && (!c.errorSince.IsZero() || c.l.lost != nil) }

// reportEnds reports the ends of operations and connections.
func (l *Link) reportEnds(sink link.Sink) (work int) {
	if l.failed == 0 {
		if len(l.ended) == 0 {
			return 0
		}
		return l.reportEnded(sink)
	}
	for i, steps := 0, endsPerTurn; i < len(l.list) && steps > 0; i++ {
		if c := l.list[i]; c.err != nil && c.errorSince.IsZero() {
			c.endLent(link.Broken(c.err))
			if l.lost == nil {
				c.enterError()
				steps--
			}
		}
	}
	l.pollFaults()
	for _, c := range l.list {
		if c.ending() {
			l.settles(c)
		}
	}
	l.drain(sink) // most often these completions are all that is missing
	ends := 0
	for i := 0; i < len(l.list) && ends < endsPerTurn; i++ {
		c := l.list[i]
		if !c.ending() || !c.replacedAt.IsZero() || !l.settles(c) || c.lentQPs > 0 {
			continue
		}
		err := c.err
		l.closeConn(c, link.Broken(err))
		l.stats.Faults++
		l.reportEnded(sink)
		sink.Down(c.peer, err)
		ends, i = ends+1, -1 // Down may have changed the list
	}
	return 1 + l.reportEnded(sink)
}

// closeConn ends everything of c except its queue pair; its operations are reported when
// the queue pair is destroyed. That happens at once, unless shared receives must complete
// first: a device drops completions together with their queue pair. Messages that are not
// handed over by then are lost with the connection, as they are if a connection has
// receives of its own.
func (l *Link) closeConn(c *conn, cause error) {
	l.conns[c.peer] = nil
	for i, x := range l.list {
		if x == c {
			l.list = append(l.list[:i], l.list[i+1:]...)
			break
		}
	}
	if c.listed = false; c.err != nil {
		l.failed--
	}
	c.endLent(cause)
	c.ended, c.cause = true, cause
	c.closeSocket()
	switch {
	case l.table.closed:
		c.destroyLent()
	case l.sharing.receives != nil && !c.settled && l.lost == nil:
		c.enterError()
		l.pollFaults() // it may be quiet already
	}
	if l.table.closed || c.lentQPs == 0 && (l.sharing.receives == nil || c.settled || l.quiet(c, lastTimeout)) {
		l.destroyConn(c)
		return
	}
	c.enterError()
	l.closing = append(l.closing, c)
}

// continueEnds continues the ends of closed connections. Only slots depend on what the
// device reports of them: a device that does not report soon is not waited for.
func (l *Link) continueEnds() {
	l.pollFaults()
	steps := endsPerTurn
	left := l.closing[:0]
	for _, c := range l.closing {
		within := lastTimeout
		if !c.adopted {
			within = silentTimeout
		}
		if steps > 0 && c.lentQPs == 0 && (l.sharing.receives == nil || c.settled || l.quiet(c, within)) {
			l.destroyConn(c)
			steps--
		} else {
			left = append(left, c)
		}
	}
	clear(l.closing[len(left):])
	l.closing = left
}

// destroyConn destroys the queue pair of a closed connection, and ends its operations.
func (l *Link) destroyConn(c *conn) {
	if c.adopted {
		delete(l.sharing.byPair, c.local.pair)
	}
	c.once.Do(c.release)
	c.endOperations(&c.ops, c.cause)
}

// settleTimeout bounds the end of a connection that another one replaces. The end is
// immediate, unless the kernel implements the device (Soft-RoCE) and is not scheduled.
const settleTimeout = 100 * time.Millisecond

var (
	errReplaced  = fmt.Errorf("%w: replaced by a new connection", link.ErrBroken)
	errUnsettled = errors.New("the receives of the last connection's queue pair do not complete")
)

// replace ends the connection to peer, if there is one, because a new one exists. With
// link.ErrLater it is not finished, and the caller repeats it in the next turn.
func (l *Link) replace(peer link.Peer) error {
	c, sink := l.conns[peer], l.streaming.Sink
	if c == nil || sink == nil { // nothing was ever polled, so no operation can be in flight
		l.Forget(peer)
		return nil
	}
	if c.replacedAt.IsZero() {
		c.replacedAt = time.Now()
	}
	c.fail(errReplaced)
	c.enterError()
	c.endLent(errReplaced)
	l.pollFaults()
	if !l.settles(c) {
		l.drain(sink)
	}
	if l.conns[peer] == c && (!l.settles(c) || c.lentQPs > 0) {
		if time.Since(c.replacedAt) <= settleTimeout {
			return link.ErrLater
		}
		c.replacedAt = time.Time{} // reportEnds continues
		return fmt.Errorf("%w: %s: %w", link.ErrBroken, l.port.Device, errUnsettled)
	}
	if l.conns[peer] == c {
		l.closeConn(c, errForgotten)
	}
	if errors.Is(c.err, link.ErrProtocol) { // its last frames broke the protocol
		return c.err
	}
	return nil
}
