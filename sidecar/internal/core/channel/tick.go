package channel

import (
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Tick does what time alone brings about: late acknowledgements, heartbeats,
// and the end of peers that have been silent or unreachable for too long. It
// returns when it wants to be called again, or when its user does, if that is earlier; 0: no
// timer runs. It looks at the
// peers whose time has come and at those that are owed an acknowledgement, and
// at no others.
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
		if p := &r.peers[id]; p.times.timer == at { // else an earlier one took its place
			p.times.timer = 0
			r.tickPeer(p)
			r.Watch(p)
		}
	}
	soon := now + int64(r.cfg.Heartbeat)
	if next == 0 { // nobody is waited for yet: what is asked for meanwhile may be heard of late
		r.tickDue = soon
		return 0
	}
	// However far the first deadline is: up to there no absence would be seen, and a sidecar
	// that was stopped before would find the time of all whom it calls to be up.
	r.tickDue = min(next, soon)
	return r.tickDue
}

// absence is from where on it counts that Tick is called later than it asked for.
const absence = int64(20 * time.Millisecond)

// forgiveOwnAbsence does not hold against peers the time in which this sidecar
// itself did not run: it was stopped, or waited for a processor, and has heard nobody. On
// a machine with far more to do than it can, that is most of the time, in parts of some
// 100 ms, and a peer there has no more of it.
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

// Watch sets the timer of a peer that has come into a state with one. Frames
// only put its time off, which the timer finds out when it comes.
func (r *Room) Watch(p *Peer) {
	if at := r.deadline(p); at != 0 && (p.times.timer == 0 || at < p.times.timer) {
		p.times.timer = at
		r.timers.Push(at, p.id)
	}
}

// deadline is when a peer has to be looked at if nothing happens before. The own
// one sends no heartbeats: it is looked at when its outbox has grown.
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

// limit is when a peer of which nothing is heard is given up; 0: never.
func (r *Room) limit(p *Peer) int64 {
	since, patience := p.times.heard, r.cfg.DeadAfter
	switch p.state {
	case Connecting:
		since, patience = p.times.down, r.patience(p)
		if !p.known && r.failed {
			since = max(since, r.failedAt)
		}
	case Greeting, Ready:
		if p.times.down != 0 { // not yet heard on this connection
			since = p.times.down
		}
	case Rejected:
		since = p.times.down
	default:
		return 0
	}
	return since + int64(patience)
}

// tickPeer does what is due for a peer.
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
		// The heartbeat is an acknowledgement, and tells of credit that went
		// back since the last frame.
		p.arrivals.Hurry(r.now)
		p.times.sent = r.now
		p.out.Shrink()
		r.Touch(p)
	}
}

// giveUp ends a peer whose time is up.
func (r *Room) giveUp(p *Peer) {
	switch p.state {
	case Rejected:
		r.endRejection(p)
	case Connecting:
		r.user.Lost(p.id, fmt.Errorf("%w, no other within %v", link.ErrBroken, r.patience(p)))
	default:
		r.user.Lost(p.id, fmt.Errorf("nothing heard for %v", r.cfg.DeadAfter))
	}
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

// patience is how long a peer may be without a connection.
func (r *Room) patience(p *Peer) time.Duration {
	if p.known || r.failed { // it is to tell others, and they cannot wait until it starts
		return r.cfg.DeadAfter
	}
	return r.cfg.StartWithin
}

// Pending reports that there are frames to post at once.
func (r *Room) Pending() bool {
	for _, id := range r.dirty {
		if p := &r.peers[id]; !p.stuck && (p.state == Ready || p.state == Greeting || p.state == Rejected) {
			return true
		}
	}
	return false
}
