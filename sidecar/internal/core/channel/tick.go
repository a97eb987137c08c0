package channel

import (
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Tick does what depends on time alone: late acknowledgements, heartbeats, and the end of peers that
// have been silent or unreachable for too long. user is the time at which the user wants to be called
// again, or 0. Tick returns when it has to be called again, for itself or for the user, or 0 if no
// timer runs. Peers whose time has not come cost nothing.
func (r *Room) Tick(now, user int64) (next int64) {
	r.now, next = now, user
	r.forgiveOwnAbsence()
	due := func(t int64) {
		if next == 0 || t < next {
			next = t
		}
	}
	r.tickOwed(due)
	for r.timers.Len() > 0 {
		at, id := r.timers.First()
		if at > now {
			due(at)
			break
		}
		r.timers.Pop()
		if p := &r.peers[id]; p.times.timer == at { // else an earlier timer has replaced it
			p.times.timer = 0
			r.tickPeer(p)
			r.Watch(p)
		}
	}
	soon := now + int64(r.cfg.Heartbeat)
	if next == 0 { // no peer is waited for yet; the next connection sets a timer
		r.tickDue = soon
		return 0
	}
	// Not later than a heartbeat, however far the first deadline is: otherwise a sidecar that was
	// stopped meanwhile would not see its own absence, and would give up the peers that it calls.
	r.tickDue = min(next, soon)
	return r.tickDue
}

// absence is the delay of a call of Tick from which on this sidecar was absent.
const absence = int64(20 * time.Millisecond)

// forgiveOwnAbsence does not count the time in which this sidecar itself did not run against its
// peers: it was stopped, or waited for a processor, and could not receive. On an overloaded machine
// that is most of the time, in parts of some 100 ms, and its peers there do not run more.
func (r *Room) forgiveOwnAbsence() {
	late := r.now - r.tickDue
	if r.tickDue == 0 || late < absence {
		return
	}
	for i := range r.peers {
		p := &r.peers[i]
		p.times.heard = min(p.times.heard+late, r.now)
		if p.times.down != 0 {
			p.times.down = min(p.times.down+late, r.now)
		}
	}
}

// Watch sets the timer of a peer whose state has changed. Frames only move its time, which is noticed
// when the timer fires.
func (r *Room) Watch(p *Peer) {
	if at := r.deadline(p); at != 0 && (p.times.timer == 0 || at < p.times.timer) {
		p.times.timer = at
		r.timers.Push(at, p.id)
	}
}

// deadline returns when a peer has to be looked at if nothing happens before, or 0. The sidecar's own
// stream sends no heartbeats: it is looked at when its outbox has grown.
func (r *Room) deadline(p *Peer) int64 {
	if p.self {
		if !p.out.Large() {
			return 0
		}
		return p.times.sent + int64(r.cfg.Heartbeat)
	}
	at := r.limit(p)
	switch p.state {
	case Connecting:
		if p.times.connect != 0 {
			at = min(at, p.times.connect)
		}
	case Greeting, Ready:
		at = min(at, p.times.sent+int64(r.cfg.Heartbeat))
	}
	return at
}

// limit returns when a peer is given up from which nothing arrives, or 0 for never.
func (r *Room) limit(p *Peer) int64 {
	since, patience := p.times.heard, r.cfg.DeadAfter
	switch p.state {
	case Connecting:
		since, patience = p.times.down, r.patience(p)
		if !p.known && r.failed {
			since = max(since, r.failedAt)
		}
	case Greeting, Ready:
		if p.times.down != 0 { // nothing has arrived on this connection yet
			since = p.times.down
		}
	case Rejected:
		since = p.times.down
	default:
		return 0
	}
	return max(since+int64(patience), p.times.spared)
}

// tickPeer does the work that is due for a peer: its end, another connection, a heartbeat.
func (r *Room) tickPeer(p *Peer) {
	at := r.deadline(p)
	switch {
	case at == 0 || r.now < at:
	case p.self:
		p.times.sent = r.now
		p.out.Shrink()
	case r.now >= r.limit(p):
		r.giveUp(p)
	case p.state == Connecting:
		p.times.connect = 0
		r.ports.Connect(p.id)
	default:
		// The heartbeat is an acknowledgement, and carries the credit that was given back
		// since the last frame.
		p.arrivals.Hurry(r.now)
		p.times.sent = r.now
		p.out.Shrink()
		r.Touch(p)
	}
}

// giveUp ends a peer whose time is up.
func (r *Room) giveUp(p *Peer) {
	if p.state == Rejected {
		r.endRejection(p)
		return
	}
	since := p.times.heard
	if p.times.down != 0 {
		since = p.times.down
	}
	if p.known && r.spare(p, since) {
		return
	}
	switch {
	case p.times.spared > since && r.now-since >= int64(r.cfg.HungAfter):
		r.user.Lost(p.id, fmt.Errorf("nothing heard for %v, although its machine answers", r.cfg.HungAfter))
	case p.state == Connecting:
		r.user.Lost(p.id, fmt.Errorf("%w, no other within %v", link.ErrBroken, r.patience(p)))
	default:
		r.user.Lost(p.id, fmt.Errorf("nothing heard for %v", r.cfg.DeadAfter))
	}
}

// spare lets a peer that has been silent since a time live for another heartbeat, if its machine
// answers: on a machine that starts many pods a sidecar may get no processor for seconds. A job
// that has failed does not wait.
func (r *Room) spare(p *Peer, since int64) bool {
	if r.cfg.Answers == nil || r.failed || r.now-since >= int64(r.cfg.HungAfter) || !r.cfg.Answers(p.id) {
		return false
	}
	p.times.spared = r.now + int64(r.cfg.Heartbeat)
	return true
}

// tickOwed sends the acknowledgements that no frame has carried in time.
func (r *Room) tickOwed(due func(int64)) {
	keep := r.owed[:0]
	for _, id := range r.owed {
		p := &r.peers[id]
		switch {
		case p.arrivals.At() == 0 || p.state != Greeting && p.state != Ready:
			p.owed = false
		case r.now >= p.arrivals.At():
			p.owed = false
			r.Touch(p)
		default:
			due(p.arrivals.At())
			keep = append(keep, id)
		}
	}
	r.owed = keep
}

// patience returns how long a peer may be without a connection.
func (r *Room) patience(p *Peer) time.Duration {
	if p.known || r.failed { // it has to notify other pods of the failure, which cannot wait until it starts
		return r.cfg.DeadAfter
	}
	return r.cfg.StartWithin
}

// Pending reports whether there are frames to post at once.
func (r *Room) Pending() bool {
	for _, id := range r.dirty {
		if p := &r.peers[id]; !p.stuck && (p.state == Ready || p.state == Greeting || p.state == Rejected) {
			return true
		}
	}
	return false
}
