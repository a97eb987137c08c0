package channel

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Poster takes frames to a peer: a link, as the engine sees it.
type Poster interface {
	Post(peer link.Peer, frames []*link.Frame) int
}

// A Flush posts so much at most, so that a turn ends however fast links are: a
// small message of a rank waits for that. (With 8 MiB its round trips took 2 ms
// beside a large transfer over a fast link, with 256 KiB 0.9 ms, and the transfer as
// long.) A link is offered so many frames at once: what it does not take is not
// touched.
const (
	flushFrames = 2048
	flushBytes  = 256 << 10
	postBatch   = 256
)

// Flush posts what the events of this turn have queued. It returns true when
// there is more to post at once. What a link cannot take now is not: the link
// tells by its Poll when it can.
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

// budget is what is left of a Flush.
type budget struct {
	frames int
	bytes  int64
}

func (b *budget) left() bool { return b.frames > 0 && b.bytes > 0 }

// flushPeer returns true when p has work left: its link is stuck, or the budget
// is used up.
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
	if p.rings.notices.Unsaid() && !r.postLook(p, to) {
		return true
	}
	p.rings.notices.Said()
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
		// A link that took nothing last time is asked with one frame.
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
	if (p.arrivals.Due(r.now) || p.rings.bell && p.rings.out.UnderWay() == 0) && !r.postAck(p, to) {
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

// acked notes that a frame which carries acknowledgement and credit is out.
func (r *Room) acked(p *Peer) {
	p.arrivals.Told()
	p.credit.Said()
	p.times.sent = r.now
}

func (r *Room) postAck(p *Peer, to Poster) bool {
	t := wire.Ack
	if p.arrivals.At() == 0 && !p.greet {
		t = wire.Heartbeat
	}
	p.ackFrame.Head = wire.Header{Type: t, Ack: p.arrivals.Last(), Credit: p.credit.Grant()}
	if p.greet {
		p.ackFrame.Head.A = wire.FeatureAgain | wire.FeatureElem
	}
	if to.Post(p.id, p.ackFrames[:]) == 0 {
		return false
	}
	r.acked(p)
	p.rings.bell = p.rings.bell && p.rings.out.UnderWay() > 0
	return true
}
