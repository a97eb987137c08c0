package channel

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Poster sends frames to a peer. The engine implements it by its links.
type Poster interface {
	Post(peer link.Peer, frames []*link.Frame) int
}

// Bounds of what one Flush posts, so that a turn ends however fast links are: a small message of a
// rank waits for the end of the turn. With 8 MiB, round trips during a large transfer over a fast
// link took 2 ms; with 256 KiB they took 0.9 ms, and the transfer as long. postBatch is how many
// frames a link is offered at once.
const (
	flushFrames = 2048
	flushBytes  = 256 << 10
	postBatch   = 256
)

// Flush posts the frames that the events of this turn have queued. It reports whether there is
// more to post at once. Frames that a link cannot take now do not count: the link reports by
// its Poll when it can.
func (r *Room) Flush(now int64, to Poster) (more bool) {
	r.now = now
	if len(r.dirty) == 0 { // most often
		return false
	}
	r.budget = budget{frames: flushFrames, bytes: flushBytes}
	r.held = r.held[:0]
	i := 0
	for ; i < len(r.dirty) && r.budget.left(); i++ {
		p := &r.peers[r.dirty[i]]
		if r.flushPeer(p, to) {
			r.held = append(r.held, p.id)
			more = more || !p.stuck
		} else {
			p.isDirty = false
		}
	}
	if i == len(r.dirty) && len(r.held) == 0 { // most often
		r.dirty = r.dirty[:0]
		return false
	}
	// Peers that had no turn go first next time.
	more = more || i < len(r.dirty)
	r.dirty = append(r.dirty[:copy(r.dirty, r.dirty[i:])], r.held...)
	return more
}

// budget is how much the current Flush may still post.
type budget struct {
	frames int
	bytes  int64
}

func (b *budget) left() bool { return b.frames > 0 && b.bytes > 0 }

// flushPeer posts frames to p. It reports whether some are left, because the link takes none or the
// budget is used up.
func (r *Room) flushPeer(p *Peer, to Poster) bool {
	if p.state != Ready && p.state != Greeting && p.state != Rejected {
		return false // LinkUp makes it dirty again
	}
	stuck := p.stuck
	p.stuck = true
	if p.greet && !r.postAck(p, to) {
		return true
	}
	p.greet = false
	if p.state == Greeting || p.state == Rejected && p.denial == 0 {
		p.stuck = false
		return false
	}
	if p.rings.offer && !r.postOffer(p, to) {
		return true
	}
	p.rings.offer = false
	if p.rings.moderation.Changed() && !r.postLook(p, to) {
		return true
	}
	p.rings.moderation.Announced()
	for {
		r.feed(p)
		frames := p.out.Unposted()
		if p.walled && !r.failed {
			frames = frames[:min(uint64(len(frames)), p.wall-min(p.wall, p.out.Next()))]
		}
		if len(frames) == 0 {
			break
		}
		if !r.budget.left() {
			p.stuck = false
			return true
		}
		// A link that took nothing last time is offered one frame.
		most := min(postBatch, r.budget.frames)
		if stuck {
			most = 1
		}
		n := r.postSome(p, to, frames[:min(len(frames), most)])
		if n == 0 {
			return true
		}
		stuck = false
	}
	if (p.arrivals.Due(r.now) || p.rings.bell && p.rings.out.InFlight() == 0) && !r.postAck(p, to) {
		return true
	}
	p.stuck = false
	return false
}

// postSome offers frames to the link and counts those that it took.
func (r *Room) postSome(p *Peer, to Poster, frames []*link.Frame) int {
	for _, f := range frames {
		f.Head.Ack, f.Head.Credit = p.arrivals.Last(), p.credit.Grant()
		if !p.knowsElem { // a message can be ready before the peer has greeted
			f.Head.Elem = 0
		}
	}
	n := r.post(p, to, frames)
	for _, f := range frames[:n] {
		p.out.Posted(f)
		r.budget.bytes -= int64(f.Payload.Len)
		r.stats.FramesOut++
		r.count(f, -1)
		r.ports.Note(ranks.NotePost, p.id, f.Head.Dst, f.Head.Tag, uint64(f.Head.Length), f.Head.Seq)
	}
	r.budget.frames -= n
	if n > 0 {
		r.acked(p)
	}
	if p.self && p.times.timer == 0 && p.out.Large() {
		r.Watch(p)
	}
	return n
}

// acked notes that a frame with the latest acknowledgement and credit was posted.
func (r *Room) acked(p *Peer) {
	p.arrivals.Told()
	p.credit.Said()
	p.times.sent = r.now
	r.visits.use(p.rings.lane) // an answer is probable
}

func (r *Room) postAck(p *Peer, to Poster) bool {
	t := wire.Ack
	if p.arrivals.At() == 0 && !p.greet {
		t = wire.Heartbeat
	}
	p.ackFrame.Head = wire.Header{Type: t, Ack: p.arrivals.Last(), Credit: p.credit.Grant()}
	if p.greet {
		p.ackFrame.Head.A, p.ackFrame.Head.B = r.features(), r.cfg.Schedules
	}
	if to.Post(p.id, p.ackFrames[:]) == 0 {
		return false
	}
	r.acked(p)
	p.rings.bell = p.rings.bell && p.rings.out.InFlight() > 0
	return true
}
