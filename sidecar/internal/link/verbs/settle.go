package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A message that this side's device has acknowledged is delivered: the peer has been
// told, and may have let go of its memory (link.Delivery). So before a queue pair is
// destroyed, which makes a device forget its completions, too,
//
//  1. it is moved to the error state, in which nothing is taken in or acknowledged any
//     more (InfiniBand Architecture Specification, vol. 1, 10.3.1);
//  2. every receive that was posted is waited for: it has been filled before, or is
//     flushed (10.3.1, C10-42: all outstanding ones complete). Where receives are
//     shared, the device says when the queue pair has taken its last one (Last WQE
//     Reached, 11.6.3.4);
//  3. all completions that are there then are handled (passage): what had come is handed
//     over, and shared receives are posted again.
//
// None of it is waited for in a turn: a turn does its part, and the next one goes on.
// Others' completions come all the time, and a device takes what time it takes.

// endStep is how many connections a turn moves to the error state, and how many it
// destroys: each is some hundred microseconds of the kernel's, and all may end at once.
const endStep = 4

// passage is a place among the completions: those that were there when it was taken are
// handled once as many have been as the queue holds, or once a look that began later has
// left none.
type passage struct{ handled, looks uint64 }

func (l *Link) here() passage {
	return passage{l.cq.handled + uint64(len(l.cq.stash)+l.nic.queueDepth()), l.stats.Polls}
}

func (l *Link) passed(p passage) bool { return l.cq.dry > p.looks || l.cq.handled >= p.handled }

// quiet does what can be done now for a connection that ends, and reports whether nothing
// comes on it any more, and what has come was handled.
func (l *Link) quiet(c *conn, within time.Duration) bool {
	if l.gone != nil {
		return true
	}
	if !c.marked {
		if c.sink() && l.sharing.receives != nil && !l.over(c, within) {
			return false
		}
		c.marked, c.mark = true, l.here()
	}
	return l.passed(c.mark)
}

// settles is quiet of a connection that was not left: its own receives have ended, too.
func (l *Link) settles(c *conn) bool {
	c.settled = c.settled || l.quiet(c, lastWithin) && (c.open <= 0 || c.unpaired || l.gone != nil)
	return c.settled
}

// sink moves the queue pair to the error state; false: there is none any more.
func (c *conn) sink() bool {
	if c.sunk.IsZero() {
		c.sunk = time.Now()
		c.unpaired = c.pair.fail() != nil
	}
	return !c.unpaired
}

// ends reports that c has failed, and has been moved to the error state.
func (c *conn) ends() bool { return c.err != nil && (!c.sunk.IsZero() || c.l.gone != nil) }

// tell reports the ends of operations and connections.
func (l *Link) tell(sink link.Sink) (work int) {
	if l.failed == 0 {
		if len(l.ended) == 0 {
			return 0
		}
		return l.tellEnded(sink)
	}
	for i, steps := 0, endStep; i < len(l.list) && steps > 0; i++ {
		if c := l.list[i]; c.err != nil && c.sunk.IsZero() {
			c.endLanes(link.Broken(c.err))
			if l.gone == nil {
				c.sink()
				steps--
			}
		}
	}
	l.hear()
	for _, c := range l.list {
		if c.ends() {
			l.settles(c)
		}
	}
	l.drain(sink) // most often this is all that is waited for
	ends := 0
	for i := 0; i < len(l.list) && ends < endStep; i++ {
		c := l.list[i]
		if !c.ends() || !c.replaced.IsZero() || !l.settles(c) || c.lanes > 0 {
			continue
		}
		err := c.err
		l.leave(c, link.Broken(err))
		l.stats.Faults++
		l.tellEnded(sink)
		sink.Down(c.peer, err)
		ends, i = ends+1, -1 // Down may have changed the list
	}
	return 1 + l.tellEnded(sink)
}

// leave ends everything of c that is not the device's; what its operations have come to
// is told when its queue pair is destroyed. That is at once, unless shared receives are
// still to come back: a device forgets completions with their queue pair. What was not
// handed over by then is lost with the connection, as it is when a connection has
// receives of its own.
func (l *Link) leave(c *conn, cause error) {
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
	c.endLanes(cause)
	c.ended, c.cause = true, cause
	c.hangUp()
	switch {
	case l.places.closed:
		c.destroyLanes()
	case l.sharing.receives != nil && !c.settled && l.gone == nil:
		c.sink()
		l.hear() // it may be over at once
	}
	if l.places.closed || c.lanes == 0 && (l.sharing.receives == nil || c.settled || l.quiet(c, lastWithin)) {
		l.bury(c)
		return
	}
	c.sink()
	l.left = append(l.left, c)
}

// endLeft goes on with the ends of connections that were left. Nothing but slots depends
// on what the device says of them: one that does not say so soon is not waited for.
func (l *Link) endLeft() {
	l.hear()
	steps := endStep
	left := l.left[:0]
	for _, c := range l.left {
		within := lastWithin
		if !c.adopted {
			within = silentAfter
		}
		if steps > 0 && c.lanes == 0 && (l.sharing.receives == nil || c.settled || l.quiet(c, within)) {
			l.bury(c)
			steps--
		} else {
			left = append(left, c)
		}
	}
	clear(l.left[len(left):])
	l.left = left
}

// bury destroys the queue pair of a connection that was left, and ends its operations.
func (l *Link) bury(c *conn) {
	if c.adopted {
		delete(l.sharing.byPair, c.local.pair)
	}
	c.once.Do(c.release)
	c.endOperations(&c.ops, c.cause)
}

// settleWithin is how long the end of a connection may take that another one replaces.
// It is there at once, unless the kernel makes it and does not come to it.
const settleWithin = 100 * time.Millisecond

var (
	errReplaced  = fmt.Errorf("%w: another one was made", link.ErrBroken)
	errUnsettled = errors.New("the queue pair of the last connection has receives that do not end")
)

// replace ends the connection to peer, if there is one, as another one is there.
// link.ErrLater: it takes its time, and is to be called again in the next turn.
func (l *Link) replace(peer link.Peer) error {
	c, sink := l.conns[peer], l.streaming.Sink
	if c == nil || sink == nil { // nothing was ever polled: nothing can have been asked for
		l.Forget(peer)
		return nil
	}
	if c.replaced.IsZero() {
		c.replaced = time.Now()
	}
	c.fail(errReplaced)
	c.sink()
	c.endLanes(errReplaced)
	l.hear()
	if !l.settles(c) {
		l.drain(sink)
	}
	if l.conns[peer] == c && (!l.settles(c) || c.lanes > 0) {
		if time.Since(c.replaced) <= settleWithin {
			return link.ErrLater
		}
		c.replaced = time.Time{} // tell goes on
		return fmt.Errorf("%w: %s: %w", link.ErrBroken, l.port.Device, errUnsettled)
	}
	if l.conns[peer] == c {
		l.leave(c, errForgotten)
	}
	if errors.Is(c.err, link.ErrProtocol) { // its last frames were
		return c.err
	}
	return nil
}
