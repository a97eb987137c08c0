package core

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
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
func (c *Core) Flush(now int64, to Poster) (more bool) {
	c.now = now
	if len(c.dirty) == 0 { // most often
		return false
	}
	c.budget = budget{frames: flushFrames, bytes: flushBytes}
	c.held = c.held[:0]
	i := 0
	for ; i < len(c.dirty) && c.budget.left(); i++ {
		p := &c.peers[c.dirty[i]]
		if c.flushPeer(p, to) {
			c.held = append(c.held, p.id)
			more = more || !p.stuck
		} else {
			p.isDirty = false
		}
	}
	if i == len(c.dirty) && len(c.held) == 0 { // most often
		c.dirty = c.dirty[:0]
		return false
	}
	// Peers that had no turn go first next time.
	more = more || i < len(c.dirty)
	c.dirty = append(c.dirty[:copy(c.dirty, c.dirty[i:])], c.held...)
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
func (c *Core) flushPeer(p *peer, to Poster) bool {
	if p.state != peerReady && p.state != peerGreeting && p.state != peerDenied {
		return false // LinkUp makes it dirty again
	}
	stuck := p.stuck
	p.stuck = true
	if p.greet && !c.postAck(p, to) {
		return true
	}
	p.greet = false
	if p.state == peerGreeting || p.state == peerDenied && p.denial == 0 {
		p.stuck = false
		return false
	}
	if p.ringIn.offer && !c.postOffer(p, to) {
		return true
	}
	p.ringIn.offer = false
	if p.ringIn.notices.Unsaid() && !c.postLook(p, to) {
		return true
	}
	p.ringIn.notices.Said()
	for {
		c.feedStreams(p)
		frames := p.out.Unposted()
		if p.gen < c.gen {
			frames = frames[:c.passable(p, len(frames))]
		}
		if len(frames) == 0 {
			break
		}
		if !c.budget.left() {
			p.stuck = false
			return true
		}
		// A link that took nothing last time is asked with one frame.
		most := min(postBatch, c.budget.frames)
		if stuck {
			most = 1
		}
		n := c.postSome(p, to, frames[:min(len(frames), most)])
		if n == 0 {
			return true
		}
		stuck = false
	}
	if (p.arrivals.Due(c.now) || p.bell && p.ringOut.UnderWay() == 0) && !c.postAck(p, to) {
		return true
	}
	p.stuck = false
	return false
}

// postSome offers frames to the link and counts those that it took.
func (c *Core) postSome(p *peer, to Poster, frames []*link.Frame) int {
	for _, f := range frames {
		f.Head.Ack, f.Head.Credit = p.arrivals.Last(), p.credit.Grant()
		if !p.knowsElem { // a message can be ready before the peer has greeted
			f.Head.Elem = 0
		}
	}
	n := c.post(p, to, frames)
	for _, f := range frames[:n] {
		p.out.Posted(f)
		c.budget.bytes -= int64(f.Payload.Len)
		c.stats.FramesOut++
		if e := c.speaker(f); e != nil {
			e.backlog--
		}
		c.ports.Note(NotePost, p.id, f.Head.Dst, f.Head.Tag, uint64(f.Head.Length), f.Head.Seq)
	}
	c.budget.frames -= n
	if n > 0 {
		c.acked(p)
	}
	if p.self && p.timerAt == 0 && p.out.Large() {
		c.watch(p)
	}
	return n
}

// acked notes that a frame which carries acknowledgement and credit is out.
func (c *Core) acked(p *peer) {
	p.arrivals.Told()
	p.credit.Said()
	p.sentAt = c.now
}

func (c *Core) postAck(p *peer, to Poster) bool {
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
	c.acked(p)
	p.bell = p.bell && p.ringOut.UnderWay() > 0
	return true
}

// oweAck makes sure that what just arrived is acknowledged, at once or after
// Limits.AckDelay when no frame has carried the acknowledgement by then.
func (c *Core) oweAck(p *peer, bytes uint32, atOnce bool) {
	if p.self {
		return
	}
	p.arrivals.Owe(c.now, int64(c.cfg.limits.AckDelay), bytes, atOnce)
	if p.arrivals.At() > c.now && !p.owed {
		p.owed = true
		c.owed = append(c.owed, p.id)
	}
	if p.arrivals.Due(c.now) {
		c.touch(p)
	}
}

// consumed gives the credit of an eager message back to its sender. It is told
// by the next frame, or by one of its own once half the window is free.
func (c *Core) consumed(p *peer, bytes uint64) {
	p.credit.Return(channel.Units(bytes))
	if p.self {
		p.credit.Own()
		return
	}
	if p.credit.Unsaid() >= c.cfg.CreditBytes/4 {
		p.arrivals.Hurry(c.now)
		c.touch(p)
	}
}

// takeCredit charges an eager message of n bytes, or reports that the peer has
// no room for it now, so that it must go by rendezvous.
func (c *Core) takeCredit(p *peer, n uint64) bool {
	took := p.credit.Take(channel.Units(charge(n)))
	if !took {
		c.stats.CreditStalls++
	}
	return took
}
