package core

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Poster takes frames to a peer: a link, as the engine sees it.
type Poster interface {
	Post(peer link.Peer, frames []*link.Frame) int
}

// Acknowledgements are sent alone when so much has arrived since the last one.
const (
	ackFrames = 64
	ackBytes  = 512 << 10
)

// Flush posts what the events of this turn have queued. It returns true when a
// link did not take everything: there is more to do as soon as it can.
func (c *Core) Flush(now int64, to Poster) bool {
	c.now = now
	blocked := false
	// Peers that stay dirty are kept in place at the front of the list.
	keep := 0
	for i := 0; i < len(c.dirty); i++ {
		p := &c.peers[c.dirty[i]]
		if c.flushPeer(p, to) {
			blocked = true
			c.dirty[keep] = p.id
			keep++
		} else {
			p.isDirty = false
		}
	}
	c.dirty = c.dirty[:keep]
	return blocked
}

// flushPeer returns true when p has work left that only the link holds up.
func (c *Core) flushPeer(p *peer, to Poster) bool {
	if p.state != peerReady && p.state != peerGreeting && p.state != peerDenied {
		return false // LinkUp makes it dirty again
	}
	if p.greet && !c.postAck(p, to) {
		return true
	}
	p.greet = false
	if p.state == peerGreeting || p.state == peerDenied && p.denial == 0 {
		return false
	}
	if p.ringIn.offer && !c.postOffer(p, to) {
		return true
	}
	p.ringIn.offer = false
	for {
		c.feedStreams(p)
		frames := p.out.unposted()
		if len(frames) == 0 {
			break
		}
		for _, f := range frames {
			f.Head.Ack, f.Head.Credit = p.recvSeq, p.grant
		}
		n := c.post(p, to, frames)
		for _, f := range frames[:n] {
			p.out.queued -= f.Payload.Len
			c.stats.FramesOut++
			c.ports.Note(NotePost, p.id, f.Head.Dst, f.Head.Tag, uint64(f.Head.Length), f.Head.Seq)
		}
		p.out.next += uint64(n)
		if n > 0 {
			c.acked(p)
		}
		if n < len(frames) {
			return true
		}
	}
	if p.ackDue(c.now) {
		return !c.postAck(p, to)
	}
	return false
}

func (p *peer) ackDue(now int64) bool {
	return p.recvSeq-p.ackSent >= ackFrames || p.ackBytes >= ackBytes || p.ackAt != 0 && now >= p.ackAt
}

// acked notes that a frame which carries acknowledgement and credit is out.
func (c *Core) acked(p *peer) {
	p.ackSent, p.ackBytes, p.ackAt, p.grantSent, p.sentAt = p.recvSeq, 0, 0, p.grant, c.now
}

func (c *Core) postAck(p *peer, to Poster) bool {
	t := wire.Ack
	if p.ackAt == 0 && !p.greet {
		t = wire.Heartbeat
	}
	p.ackFrame.Head = wire.Header{Type: t, Ack: p.recvSeq, Credit: p.grant}
	if to.Post(p.id, p.ackFrames[:]) == 0 {
		return false
	}
	c.acked(p)
	return true
}

// oweAck makes sure that what just arrived is acknowledged, at once or after
// AckDelay when no frame has carried the acknowledgement by then.
func (c *Core) oweAck(p *peer, bytes uint32, atOnce bool) {
	if p.self {
		return
	}
	p.ackBytes += uint64(bytes)
	switch {
	case atOnce:
		p.ackAt = c.now
	case p.ackAt == 0:
		p.ackAt = c.now + int64(c.cfg.AckDelay)
	}
	if p.ackAt <= c.now || p.recvSeq-p.ackSent >= ackFrames || p.ackBytes >= ackBytes {
		c.touch(p)
	}
}

// consumed gives the credit of an eager message back to its sender. It is told
// by the next frame, or by one of its own once half the window is free.
func (c *Core) consumed(p *peer, bytes uint64) {
	p.grant += uint32(bytes / wire.CreditUnit)
	if p.self {
		p.granted = p.grant
		return
	}
	if uint64(p.grant-p.grantSent)*wire.CreditUnit >= c.cfg.CreditBytes/4 {
		p.ackAt = c.now
		c.touch(p)
	}
}

// takeCredit charges an eager message of n bytes, or reports that the peer has
// no room for it now, so that it must go by rendezvous.
func (c *Core) takeCredit(p *peer, n uint64) bool {
	units := uint32(charge(n) / wire.CreditUnit)
	if p.granted-p.used < units {
		c.stats.CreditStalls++
		return false
	}
	p.used += units
	return true
}
