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
//     Reached, 11.6.3.4), and completions are looked at once more after that;
//  3. what had come is handed over, by the same completions.

// settled reports that all that has come on a connection that ends is handed over.
func (l *Link) settled(c *conn, sink link.Sink) bool {
	if c.settled || l.gone != nil {
		return true
	}
	if !c.sink() {
		c.settled = true // there is no such queue pair any more
		return true
	}
	over := l.shared == nil || l.over(c, lastWithin)
	l.drainAll(sink)
	c.settled = over && c.open <= 0 || c.ended
	return c.settled
}

// settleWithin is how long a turn waits for the completions of a connection that
// another one replaces. They are there at once, unless the kernel makes them and does
// not come to it.
const settleWithin = 100 * time.Millisecond

var (
	errReplaced  = fmt.Errorf("%w: another one was made", link.ErrBroken)
	errUnsettled = errors.New("the queue pair of the last connection has receives that do not end")
)

// replace ends the connection to peer, if there is one, as another one is there.
func (l *Link) replace(peer link.Peer) error {
	c, sink := l.conns[peer], l.streaming.Sink
	if c == nil || sink == nil { // nothing was ever polled: nothing can have been asked for
		l.Forget(peer)
		return nil
	}
	c.fail(errReplaced)
	for begun := time.Now(); !l.settled(c, sink); {
		if time.Since(begun) > settleWithin { // tell goes on
			return fmt.Errorf("%w: %s: %w", link.ErrBroken, l.port.Device, errUnsettled)
		}
	}
	if l.conns[peer] == c {
		l.sever(c, errForgotten)
	}
	if errors.Is(c.err, link.ErrProtocol) { // its last frames were
		return c.err
	}
	return nil
}
