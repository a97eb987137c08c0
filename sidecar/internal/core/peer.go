package core

import (
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/carriage"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// peerState is where the connection to a peer stands (P§3).
type peerState uint8

const (
	peerIdle       peerState = iota // never needed yet
	peerConnecting                  // Ports.Connect is under way
	peerGreeting                    // up; waiting for the peer's first Ack, which says what arrived
	peerReady
	peerDead   // for good
	peerDenied // dead, and connected again: it is being told (connectedDead)
)

// peer is one sidecar of the job: its connection, what is on its way to it,
// and what has come from it.
type peer struct {
	id    link.Peer
	self  bool
	state peerState
	bye   bool // it said goodbye: its end is no failure
	known bool // it was reached once
	knows bool // it has told that the job failed, or was told
	told  bool // it has told

	knowsElem bool // it takes headers with the type of a message's elements

	loss   *Failure // of a dead peer: what to tell it when the job has not failed
	denial uint64   // number of the Abort that it is told with; 0: not yet

	ranks     int    // that it hosts,
	first     uint32 // the lowest of them
	last      uint32 // and the highest
	account   channel.Account
	announced int // messages of it that wait to be matched, and that it still has

	toldLeft int // of the ranks that have left here, those that it was told of

	gen     uint64   // of its ranks' attachments
	genTold uint64   // generation of this sidecar that it was told of
	wall    uint64   // while it is behind, frames with higher numbers wait
	early   []uint32 // of its ranks in a generation that has not begun here, those that have left it
	renews  bool     // it knows further generations

	unmet  uint64 // the last frame that was made before it was first connected
	took   uint64 // its goodbye: it had taken less than this frame from here; 0: all, or it has said none
	byeSeq uint64 // number of the frame with our goodbye; 0: it was not said
	caps   link.Caps

	out      channel.Outbox
	forgets  bool                      // its greeting asked for what its link had taken in (accept)
	fragment uint64                    // bytes of a large transfer in one frame
	most     uint64                    // bytes of them that may wait for the link
	streams  queue.Fair[uint32, entry] // large transfers with frames still to be emitted
	retracts int                       // messages that it was asked to give back, and has not answered
	isDirty  bool
	stuck    bool  // its link took nothing last time
	timerAt  int64 // when it is looked at again; 0: no timer runs
	owed     bool  // it is among those that are owed an acknowledgement
	credit   channel.Credit

	arrivals  channel.Arrivals
	handling  uint64 // last frame whose message, if any, has been matched
	greet     bool   // an Ack must be posted before any other frame
	in        inbound
	placing   bool // the link holds the memory that it is for
	heardAt   int64
	sentAt    int64
	downAt    int64 // since when there is no connection on which it was heard; 0: there is one
	redialAt  int64 // when to ask for the next connection; 0: it was asked for
	pause     int64 // before that, after a connection on which nothing was heard
	ackFrame  link.Frame
	ackFrames [1]*link.Frame

	offers  *offers // of its receives; nil: it has made none
	lane    int     // place in RegionRings; -1: none
	rings   uint64  // that either side has offered, over all connections
	ringIn  ringIn
	ringOut carriage.Sender
	bell    bool // it may sleep beside what was written into its ring: a frame is owed (look.go)
}

// inbound is the frame whose payload the link is reading into memory now. It
// survives a broken connection: the peer sends the frame again, and it must go
// to the same place (P§3.3).
type inbound struct {
	active  bool
	head    wire.Header
	dst     link.Ref
	id      uint64 // receive, message or origin that the payload is for
	kind    placeKind
	of      onesided.InboundKind
	session SessionID
	hold    bool
}

func (p *peer) init(id link.Peer, cfg *Config) {
	p.id, p.self = id, id == cfg.Self
	p.knowsElem = p.self
	p.credit.Init(cfg.CreditBytes)
	p.fragment, p.most = uint64(cfg.FragmentBytes), cfg.limits.AheadBytes
	if p.self {
		p.fragment, p.most = min(p.fragment, fragmentOwn), min(p.most, aheadOwn)
	}
	p.out.Init()
	p.ackFrames[0] = &p.ackFrame
	p.lane = -1
	p.gen, p.genTold = 1, 1
}

// emit queues a frame to p and returns it for the caller to fill. The first
// frame to a peer makes the connection.
func (c *Core) emit(p *peer, t wire.Type) (*link.Frame, *after) {
	if p.genTold != c.gen { // never where ranks attach once
		c.tellAgain(p)
	}
	f, a := p.out.Push()
	// Zeroed and set, not assigned: a literal would be built elsewhere and copied.
	f.Head = wire.Header{}
	f.Gather = false
	f.Head.Type, f.Head.Seq = t, p.out.Last()
	c.touch(p)
	c.reach(p)
	return f, a
}

// reach makes the connection to p if nobody has needed it before.
func (c *Core) reach(p *peer) {
	if p.state == peerIdle {
		c.connect(p)
	}
}

func (c *Core) connect(p *peer) {
	p.state = peerConnecting
	p.downAt = c.now
	c.watch(p)
	c.ports.Connect(p.id)
}

// touch makes the next Flush look at p.
func (c *Core) touch(p *peer) {
	if !p.isDirty {
		p.isDirty = true
		c.dirty = append(c.dirty, p.id)
	}
}

// LinkUp reports a fresh connection to peer. Both sides first say what they
// have received; then each resumes after it (P§3.3).
func (c *Core) LinkUp(now int64, id link.Peer, caps link.Caps) {
	c.now = now
	p := &c.peers[id]
	if p.state == peerDead || p.state == peerDenied {
		c.connectedDead(p)
		return
	}
	if p.known {
		c.stats.Reconnects++
	} else {
		p.unmet = p.out.Last()
	}
	if p.state == peerReady || p.state == peerGreeting { // the peer has noticed first
		c.stats.Breaks++
	}
	c.closeRings(p) // of a connection that this one replaces
	// Silence counts from the last frame, over all connections: one that is
	// made and says nothing must not begin it anew.
	if p.downAt == 0 || !p.known {
		p.downAt = now
	}
	p.caps, p.redialAt, p.sentAt, p.forgets = caps, 0, now, false
	c.openRing(p)
	p.state, p.greet, p.known = peerGreeting, true, true
	c.watch(p)
	c.ports.Note(NoteUp, id, 0, 0, 0, p.arrivals.Last())
	if c.fail != nil {
		c.tell(p, c.fail) // before anything else that follows from it
	}
	if !p.self && p.genTold != c.gen {
		c.tellAgain(p)
	}
	if p.self {
		p.state, p.greet = peerReady, false
	} else if c.left && p.byeSeq == 0 {
		c.emitBye(p)
	} else if !c.left && c.parting.tellAt == 0 {
		c.tellLeft(p)
	}
	c.touch(p)
}

// LinkDown reports that the connection to peer broke. A peer that broke the
// protocol is not worth another connection: the job fails.
func (c *Core) LinkDown(now int64, id link.Peer, err error) {
	c.now = now
	p := &c.peers[id]
	switch p.state {
	case peerDead, peerIdle:
		return
	case peerDenied:
		c.endDenial(p)
		return
	}
	c.ports.Note(NoteDown, id, 0, 0, 0, p.arrivals.Last())
	c.stats.Breaks++
	c.closeRings(p)
	c.divert(p)
	if isProtocol(err) {
		c.peerDied(p, err)
		return
	}
	if p.parted() && c.orphans == 0 {
		p.state, p.downAt = peerIdle, 0
		if c.fail != nil {
			c.dropStreams(p) // the rest of them goes and comes no more
			c.onesided.Drop(p.id, c.lost(p))
		}
		c.startSweep() // does it owe anything?
		return
	}
	if p.told { // and has closed: it wants nothing more of this sidecar
		c.peerDied(p, err)
		return
	}
	if p.downAt == 0 {
		p.downAt = now
	}
	heard := p.state == peerReady
	if p.state = peerConnecting; heard {
		c.watch(p)
		c.ports.Connect(id)
		return
	}
	// Whoever answers there and says nothing will not do better at once.
	p.pause = min(max(2*p.pause, redialFirst), redialMax)
	p.redialAt = now + p.pause
	c.watch(p)
}

// Pauses before the next connection to a peer that was not heard on the last.
const (
	redialFirst = int64(10 * time.Millisecond)
	redialMax   = int64(500 * time.Millisecond)
)

// LinkFailed reports that no connection to peer could be made, finally.
func (c *Core) LinkFailed(now int64, id link.Peer, err error) {
	c.now = now
	if p := &c.peers[id]; p.state == peerConnecting {
		c.peerDied(p, err)
	}
}

// acknowledge releases every frame up to and including seq.
func (c *Core) acknowledge(p *peer, seq uint64) error {
	o := &p.out
	if seq <= o.Base() {
		return nil
	}
	if !o.Was(seq) {
		return o.Never(seq)
	}
	if seq > o.Next() {
		c.notAgain(o, seq)
	}
	for o.Base() < seq {
		if f, a := o.Acknowledge(); a.Any() {
			c.released(p, *a, f)
		}
	}
	return nil
}

// released carries out what the acknowledgement of a frame brings about.
func (c *Core) released(p *peer, a after, f *link.Frame) {
	switch a.Kind {
	case afterComplete:
		c.ranks.Finish(a.Session, uint32(a.ID), c.taken(p, f))
	case afterCopy:
		c.copies.put(f.Payload)
	case afterChunk:
		c.chunkSent(a.ID, f)
	case afterOrigin:
		c.onesided.Released(p.id, onesided.ReleaseAccess, a.ID)
	case afterGot:
		c.onesided.Released(p.id, onesided.ReleaseGet, a.ID)
	case afterAnswer:
		p.account.Answered()
	case afterColl:
		c.collectives.Done(a.ID, c.taken(p, f))
	}
	if a.Hold {
		c.ranks.Unhold(a.Session)
	}
}
