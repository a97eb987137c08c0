package channel

import (
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Pauses before the next connection to a peer from which nothing has come on the last one.
const (
	redialFirst = int64(10 * time.Millisecond)
	redialMax   = int64(500 * time.Millisecond)
)

// Reach makes the connection to p if it was never needed before.
func (r *Room) Reach(p *Peer) {
	if p.state == Idle {
		r.connect(p)
	}
}

func (r *Room) connect(p *Peer) {
	p.state = Connecting
	p.times.down = r.now
	r.Watch(p)
	r.ports.Connect(p.id)
}

// LinkUp reports a fresh connection to peer. Both sides first send the number of the last
// frame that they have received; then each resumes after it (P§3.3).
func (r *Room) LinkUp(now int64, id link.Peer, caps link.Caps) {
	r.now = now
	p := &r.peers[id]
	if p.state == Dead || p.state == Rejected {
		r.connectedDead(p)
		return
	}
	if p.known {
		r.stats.Reconnects++
	} else {
		p.unmet = p.out.Last()
	}
	if p.state == Ready || p.state == Greeting { // the peer has noticed the break first
		r.stats.Breaks++
	}
	r.closeRings(p) // those of the connection that this one replaces
	// Silence counts from the last frame, over all connections: a connection on which nothing
	// arrives must not restart it.
	if p.times.down == 0 || !p.known {
		p.times.down = now
	}
	p.caps, p.times.connect, p.times.sent, p.forgets = caps, 0, now, false
	r.openRing(p)
	p.state, p.greet, p.known = Greeting, true, true
	r.Watch(p)
	r.ports.Note(ranks.NoteUp, id, 0, 0, 0, p.arrivals.Last())
	if p.self {
		p.state, p.greet = Ready, false
	} else {
		r.user.Up(id)
	}
	r.Touch(p)
}

// LinkDown reports that the connection to peer broke.
func (r *Room) LinkDown(now int64, id link.Peer, err error) {
	r.now = now
	p := &r.peers[id]
	switch p.state {
	case Dead, Idle:
		return
	case Rejected:
		r.endRejection(p)
		return
	}
	r.ports.Note(ranks.NoteDown, id, 0, 0, 0, p.arrivals.Last())
	r.stats.Breaks++
	r.closeRings(p)
	if !r.user.Down(id, err) {
		return
	}
	t := &p.times
	if t.down == 0 {
		t.down = now
	}
	heard := p.state == Ready
	if p.state = Connecting; heard {
		r.Watch(p)
		r.ports.Connect(id)
		return
	}
	// A peer that accepts a connection and sends nothing is given a pause.
	t.pause = min(max(2*t.pause, redialFirst), redialMax)
	t.connect = now + t.pause
	r.Watch(p)
}

// LinkFailed reports that all attempts to connect to peer have failed.
func (r *Room) LinkFailed(now int64, id link.Peer, err error) {
	r.now = now
	if p := &r.peers[id]; p.state == Connecting {
		r.user.Lost(id, err)
	}
}

// PeerLost reports that the process of a peer was started again, although the peer may be connected.
func (r *Room) PeerLost(now int64, id link.Peer, cause error) {
	r.now = now
	if p := &r.peers[id]; p.state != Dead && p.state != Rejected {
		r.user.Lost(id, cause)
	}
}

// Rest makes a peer Idle, because it is not needed any more; Handler.Down calls it. The next
// frame that is emitted makes another connection.
func (r *Room) Rest(p *Peer) { p.state, p.times.down = Idle, 0 }

// Bury ends a peer: its connection is closed and its frames are dropped.
func (r *Room) Bury(p *Peer) {
	r.closeWindow(p)
	p.state = Dead
	r.closeRings(p)
	r.ports.Disconnect(p.id)
	r.drop(p)
}
