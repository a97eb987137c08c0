package verbs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Making, connecting or destroying a lentQP takes some hundred microseconds of an
// engine's turn, up to a millisecond, and a peer may ask for lentQPs and end them as
// often as it likes. So none of these steps is executed when a message about it arrives:
//
//	wanted ──► made ──► joined (the asker's, when it is answered) ──► ended ──► destroyed
//
// A turn executes each step once at most. Connections take turns in making those that
// they want, at a bounded rate for each peer and for all together: a lentQP that waits is
// not urgent, since its messages are copied meanwhile. One that ends before it was made
// costs nothing.
const (
	lentBurst     = 32                    // queue pairs made without a pause
	lentPause     = 10 * time.Millisecond // average interval between two queue pairs for all peers
	lentPeerPause = 50 * time.Millisecond // average interval between two queue pairs for one peer
	wantedMax     = lentQPsMax            // queue pairs that one connection may wait for
)

// pace is a rate limiter: burst events at once, then one each pause.
type pace struct{ next time.Time }

func (p *pace) may(now time.Time, pause time.Duration, burst int) bool {
	return p.next.Sub(now) <= time.Duration(burst-1)*pause
}

func (p *pace) spend(now time.Time, pause time.Duration) {
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(pause)
}

// history is the history of a peer's lentQPs, over all of its connections.
type history struct {
	pace  pace
	fails map[domainPair]failures // failures of lentQPs that this side has asked for
}

func (c *conn) history() *history {
	p := c.l.lending.histories[c.peer]
	if p == nil {
		p = &history{fails: map[domainPair]failures{}}
		c.l.lending.histories[c.peer] = p
	}
	return p
}

// lentSteps are the steps that wait for a turn.
type lentSteps struct {
	wanting []*conn   // connections that want lentQPs, the one in turn first
	pace    pace      // rate of all peers together
	joins   []*lentQP // lentQPs that the peer has answered
	dying   []*lentQP // lentQPs that have ended
}

// want queues q to be made in a later turn.
func (c *conn) want(q *lentQP) error {
	if len(c.wanted) >= wantedMax {
		c.wanted = slices.DeleteFunc(c.wanted, func(q *lentQP) bool { return q.over })
	}
	if len(c.wanted) >= wantedMax {
		return errLentQPs
	}
	c.wanted = append(c.wanted, q)
	if !c.wants {
		c.wants = true
		c.l.lending.steps.wanting = append(c.l.lending.steps.wanting, c)
	}
	return nil
}

// stepLent executes one step of each kind.
func (l *Link) stepLent() (work int) {
	s := &l.lending.steps
	if len(s.dying) > 0 {
		q := s.dying[0]
		s.dying = slices.Delete(s.dying, 0, 1)
		q.destroy()
		work++
	}
	if len(s.joins) > 0 {
		q := s.joins[0]
		s.joins = slices.Delete(s.joins, 0, 1)
		q.join()
		work++
	}
	if len(s.wanting) > 0 && l.lost == nil && l.makeLent(l.lending.clock()) {
		work++
	}
	return work
}

// hasLentSteps reports whether stepLent would execute one now.
func (l *Link) hasLentSteps() bool {
	s := &l.lending.steps
	if len(s.dying)+len(s.joins) > 0 {
		return true
	}
	if len(s.wanting) == 0 {
		return false
	}
	now := l.lending.clock()
	return l.lost == nil && s.pace.may(now, lentPause, lentBurst) && slices.ContainsFunc(s.wanting, func(c *conn) bool { return c.mayMake(now) })
}

// mayMake reports whether a lentQP of c may be made now. A peer that does not read the
// messages about its last ones gets no more.
func (c *conn) mayMake(now time.Time) bool {
	return c.ended || c.err != nil || len(c.lentOut) < lentQPsMax && c.history().pace.may(now, lentPeerPause, lentBurst)
}

// makeLent makes a lentQP of the next connection that may have one.
func (l *Link) makeLent(now time.Time) bool {
	s := &l.lending.steps
	if !s.pace.may(now, lentPause, lentBurst) {
		return false
	}
	for range len(s.wanting) {
		c := s.wanting[0]
		s.wanting = slices.Delete(s.wanting, 0, 1)
		if !c.mayMake(now) {
			s.wanting = append(s.wanting, c)
			continue
		}
		q := c.nextWanted()
		if c.wants = len(c.wanted) > 0; c.wants {
			s.wanting = append(s.wanting, c)
		}
		if q != nil {
			s.pace.spend(now, lentPause)
			c.history().pace.spend(now, lentPeerPause)
			q.make()
			return true
		}
	}
	return false
}

// nextWanted returns the next lentQP that c wants and that has not ended, or nil.
func (c *conn) nextWanted() *lentQP {
	for len(c.wanted) > 0 {
		q := c.wanted[0]
		c.wanted = slices.Delete(c.wanted, 0, 1)
		if !q.over {
			return q
		}
	}
	return nil
}

var errDomain = errors.New("the domain has ended")

// make makes the queue pair of a wanted lentQP, and sends the peer its offer.
func (q *lentQP) make() {
	c, l := q.c, q.c.l
	err := errDomain
	if l.lending.domains[q.d.number] == q.d {
		err = q.create()
	}
	switch {
	case q.asks && err == nil:
		q.since = l.lending.clock()
		l.lending.unanswered++
		c.sendLent(lentMessage{kind: lentAsk, number: q.number, domain: q.theirs, offer: &q.local})
		return
	case q.asks:
		if !errors.Is(err, errLentQPs) && !errors.Is(err, errDomain) { // only then the device was asked
			c.noteFailure(q.domains())
		}
		q.end(err, false)
		return
	case err == nil:
		if err = q.pair.connect(&q.local, q.remote); err == nil {
			q.ready = true
			c.sendLent(lentMessage{kind: lentAnswer, number: q.number, offer: &q.local})
			return
		}
	}
	l.cfg.Log.Debug("no queue pair for memory that an application lends", "peer", c.peer, "cause", err)
	q.end(err, true)
}

// join connects the asker's side of a lentQP that the peer has answered.
func (q *lentQP) join() {
	if q.over {
		return
	}
	c, l := q.c, q.c.l
	if err := q.pair.connect(&q.local, q.remote); err != nil {
		q.fail(fmt.Errorf("%w: %w", link.ErrBroken, err))
		return
	}
	q.ready = true
	l.lending.unanswered--
	l.stats.LentPairs++
	l.cfg.Log.Info("a queue pair for memory that ranks have registered", "peer", c.peer, "domain", q.d.number, "peerDomain", q.theirs, "qp", q.local.pair, "peerQp", q.remote.pair)
}

// destroy destroys the queue pair of a lentQP that has ended, after which the device
// touches no memory for it, and ends its operations. An error means that the application
// has destroyed it already.
func (q *lentQP) destroy() {
	if q.destroyed {
		return
	}
	q.destroyed = true
	c, l := q.c, q.c.l
	delete(q.d.lentQPs, q.tag)
	l.lending.lentQPs--
	c.lentQPs--
	_ = q.pair.destroy()
	q.d.inFlight -= q.ops.inFlight
	c.endOperations(&q.ops, q.cause)
}

// endLent ends all lentQPs of a connection that ends.
func (c *conn) endLent(cause error) {
	for _, list := range []map[uint32]*lentQP{c.asked, c.answered} {
		for _, q := range list {
			q.end(cause, false)
		}
	}
}

// destroyLent destroys the ended lentQPs of a connection without waiting for their turns.
func (c *conn) destroyLent() {
	for _, q := range c.l.lending.steps.dying {
		if q.c == c {
			q.destroy()
		}
	}
}
