package verbs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// To make a lane, to connect it and to destroy it are some hundred microseconds of an
// engine's turn each, up to a millisecond, and a peer may ask for lanes and end them as
// often as it likes. So none of it is done when a word about it comes:
//
//	wanted ──► made ──► joined (the asker's, when it is answered) ──► ended ──► destroyed
//
// and a turn takes each of these steps once at most. Those that are wanted take turns by
// connection, and are made in a bounded number of time, a peer's and all together: those
// that are not made meanwhile are not needed either, since their messages are copied. One
// that ends before it was made costs nothing.
const (
	laneBurst    = 32 // that are made without a pause
	lanePause    = 10 * time.Millisecond
	lanePeerEach = 50 * time.Millisecond // of one peer
	wantedMax    = lanesMax              // of one connection
)

// pace bounds how often something happens: burst times at once, then once each pause.
type pace struct{ next time.Time }

func (p *pace) may(now time.Time, pause time.Duration, burst int) bool {
	return p.next.Sub(now) <= time.Duration(burst-1)*pause
}

func (p *pace) take(now time.Time, pause time.Duration) {
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(pause)
}

// past is what a peer's lanes have come to, over all of its connections.
type past struct {
	pace  pace
	fails map[laneEnds]failures // of lanes that this side has asked for
}

func (c *conn) past() *past {
	p := c.l.lending.pasts[c.peer]
	if p == nil {
		p = &past{fails: map[laneEnds]failures{}}
		c.l.lending.pasts[c.peer] = p
	}
	return p
}

// laneSteps is what is to be done at devices for lanes.
type laneSteps struct {
	wanting []*conn // that want some, the one whose turn it is first
	pace    pace    // of all peers together
	joins   []*lane // that the peer has answered
	dying   []*lane // that have ended
}

// want has ln made, in a later turn.
func (c *conn) want(ln *lane) error {
	if len(c.wanted) >= wantedMax {
		c.wanted = slices.DeleteFunc(c.wanted, func(ln *lane) bool { return ln.over })
	}
	if len(c.wanted) >= wantedMax {
		return errLanes
	}
	c.wanted = append(c.wanted, ln)
	if !c.wants {
		c.wants = true
		c.l.lending.steps.wanting = append(c.l.lending.steps.wanting, c)
	}
	return nil
}

// stepLanes takes a step of each kind.
func (l *Link) stepLanes() (work int) {
	s := &l.lending.steps
	if len(s.dying) > 0 {
		ln := s.dying[0]
		s.dying = slices.Delete(s.dying, 0, 1)
		ln.destroy()
		work++
	}
	if len(s.joins) > 0 {
		ln := s.joins[0]
		s.joins = slices.Delete(s.joins, 0, 1)
		ln.join()
		work++
	}
	if len(s.wanting) > 0 && l.gone == nil && l.makeLane(l.lending.clock()) {
		work++
	}
	return work
}

// laneSteps reports that stepLanes would take one now.
func (l *Link) laneSteps() bool {
	s := &l.lending.steps
	if len(s.dying)+len(s.joins) > 0 {
		return true
	}
	if len(s.wanting) == 0 {
		return false
	}
	now := l.lending.clock()
	return l.gone == nil && s.pace.may(now, lanePause, laneBurst) && slices.ContainsFunc(s.wanting, func(c *conn) bool { return c.mayMake(now) })
}

// mayMake reports that a lane of c's may be made now, if it wants one. Who does not take
// the words about the last ones has no more.
func (c *conn) mayMake(now time.Time) bool {
	return c.ended || c.err != nil || len(c.words) < lanesMax && c.past().pace.may(now, lanePeerEach, laneBurst)
}

// makeLane makes a lane of the next connection that may have one.
func (l *Link) makeLane(now time.Time) bool {
	s := &l.lending.steps
	if !s.pace.may(now, lanePause, laneBurst) {
		return false
	}
	for range len(s.wanting) {
		c := s.wanting[0]
		s.wanting = slices.Delete(s.wanting, 0, 1)
		if !c.mayMake(now) {
			s.wanting = append(s.wanting, c)
			continue
		}
		ln := c.nextWanted()
		if c.wants = len(c.wanted) > 0; c.wants {
			s.wanting = append(s.wanting, c)
		}
		if ln != nil {
			s.pace.take(now, lanePause)
			c.past().pace.take(now, lanePeerEach)
			ln.make()
			return true
		}
	}
	return false
}

// nextWanted is the next lane that c wants and that has not ended; nil: there is none.
func (c *conn) nextWanted() *lane {
	for len(c.wanted) > 0 {
		ln := c.wanted[0]
		c.wanted = slices.Delete(c.wanted, 0, 1)
		if !ln.over {
			return ln
		}
	}
	return nil
}

var errDomain = errors.New("the domain has ended")

// make makes the queue pair of a lane that is wanted, and tells the peer.
func (ln *lane) make() {
	c, l := ln.c, ln.c.l
	err := errDomain
	if l.lending.domains[ln.d.number] == ln.d {
		err = ln.create()
	}
	switch {
	case ln.asks && err == nil:
		ln.since = l.lending.clock()
		l.lending.unanswered++
		c.say(laneWord{kind: laneAsk, number: ln.number, domain: ln.theirs, offer: &ln.local})
		return
	case ln.asks:
		if !errors.Is(err, errLanes) && !errors.Is(err, errDomain) { // the device was asked
			c.failed(ln.ends())
		}
		ln.end(err, false)
		return
	case err == nil:
		if err = ln.pair.connect(&ln.local, ln.remote); err == nil {
			ln.ready = true
			c.say(laneWord{kind: laneAnswer, number: ln.number, offer: &ln.local})
			return
		}
	}
	l.cfg.Log.Debug("no queue pair for memory that an application lends", "peer", c.peer, "cause", err)
	ln.end(err, true)
}

// join connects the asker's end of a lane that the peer has answered.
func (ln *lane) join() {
	if ln.over {
		return
	}
	c, l := ln.c, ln.c.l
	if err := ln.pair.connect(&ln.local, ln.remote); err != nil {
		ln.fail(fmt.Errorf("%w: %w", link.ErrBroken, err))
		return
	}
	ln.ready = true
	l.lending.unanswered--
	l.stats.Lanes++
	l.cfg.Log.Info("a queue pair for memory that ranks have registered", "peer", c.peer, "domain", ln.d.number, "peerDomain", ln.theirs, "qp", ln.local.pair, "peerQp", ln.remote.pair)
}

// destroy destroys the queue pair of a lane that has ended, after which the device touches
// no memory for it, and ends its operations. What the application has destroyed itself is
// gone already.
func (ln *lane) destroy() {
	if ln.destroyed {
		return
	}
	ln.destroyed = true
	c, l := ln.c, ln.c.l
	delete(ln.d.lanes, ln.tag)
	l.lending.lanes--
	c.lanes--
	_ = ln.pair.destroy()
	ln.d.under -= ln.ops.under
	c.endOperations(&ln.ops, ln.cause)
}

// endLanes ends those of a connection that ends.
func (c *conn) endLanes(cause error) {
	for _, list := range []map[uint32]*lane{c.asked, c.answered} {
		for _, ln := range list {
			ln.end(cause, false)
		}
	}
}

// destroyLanes does not wait for the turns of a connection's lanes, which have ended.
func (c *conn) destroyLanes() {
	for _, ln := range c.l.lending.steps.dying {
		if ln.c == c {
			ln.destroy()
		}
	}
}
