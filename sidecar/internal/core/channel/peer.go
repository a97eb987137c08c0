package channel

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// State is the state of the connection to a peer (P§3).
type State uint8

const (
	Idle       State = iota // never needed yet
	Connecting              // Ports.Connect is under way
	Greeting                // up; waiting for the peer's first Ack, with the number of the last frame that it received
	Ready
	Dead     // for good
	Rejected // a dead peer that has connected again and gets a report of that (reject.go)
)

// Peer is one sidecar of the job: its connection, the frames to it, and the state of the
// frames from it.
type Peer struct {
	id    link.Peer
	self  bool
	state State
	known bool // the peer was connected once
	caps  link.Caps

	out         Outbox
	unmet       uint64 // the last frame that was made before the peer was first connected
	wall        uint64 // if walled, frames with higher numbers wait
	walled      bool
	forgets     bool // the peer's greeting asked for what its link had taken in (accept)
	knowsElem   bool // the peer takes headers with the type of a message's elements
	isDirty     bool
	stuck       bool // the peer's link took nothing last time
	credit      Credit
	account     Account
	transfers   queue.Fair[uint32, Transfer]
	fragment    uint64 // bytes of a transfer in one frame
	ahead       uint64 // bytes of transfers that may wait for the link
	unannounced bool   // the user is asked before the next frame (Handler.Announce)

	arrivals  Arrivals
	owed      bool   // the peer is among those that are owed an acknowledgement
	current   uint64 // last frame that was handed to the user
	in        inbound
	greet     bool // an Ack must be posted before any other frame
	ackFrame  link.Frame
	ackFrames [1]*link.Frame

	times  times
	rings  rings
	denial uint64 // number of the frame that reports to the peer that it is dead; 0: not yet emitted
}

// inbound is the frame whose payload is being placed. It survives a broken connection: the
// peer sends the frame again, and it must go to the same destination (P§3.3).
type inbound struct {
	active bool
	link   bool // the link holds the destination
	head   wire.Header
	dst    link.Ref
}

// times are the values from which the timer of a peer is computed.
type times struct {
	timer   int64 // time of the next visit to the peer; 0: no timer runs
	heard   int64
	sent    int64
	down    int64 // time since which no connection has carried a frame; 0: one does
	connect int64 // time at which the next connection is requested; 0: it was requested
	pause   int64 // pause before the next request, after a connection on which no frame arrived
	spared  int64 // time before which silence does not end the peer (Config.Answers)
}

// rings are the two rings of a connection, which carry small frames by remote write (P§5.7).
type rings struct {
	lane       int    // index in RegionRings; -1: none
	count      uint64 // rings that either side has offered, over all connections
	in         eagerring.Receiver
	key        link.Key   // key of the registration of in
	offer      bool       // in is still to be offered to the peer
	moderation Moderation // whether the peer has to notify of its writes into in
	out        eagerring.Sender
	bell       bool // the peer may sleep, and writes into out were not notified: a frame is owed (look.go)
}

func (p *Peer) init(id link.Peer, cfg *Config, accounts *Accounts) {
	p.id, p.self = id, id == cfg.Self
	p.knowsElem = p.self
	p.credit.Init(cfg.CreditFirst)
	p.account.Open(id, accounts)
	p.out.Init()
	p.ackFrames[0] = &p.ackFrame
	p.rings.lane = -1
	p.setAhead(id, cfg)
}

// ID returns the number of the peer's pod.
func (p *Peer) ID() link.Peer { return p.id }

// Self reports whether the peer is this sidecar.
func (p *Peer) Self() bool { return p.self }

// State returns the state of the connection.
func (p *Peer) State() State { return p.state }

// Known reports whether the peer was connected once.
func (p *Peer) Known() bool { return p.known }

// Caps returns the capabilities of the link to the peer.
func (p *Peer) Caps() link.Caps { return p.caps }

// Account returns the account of the bytes that this sidecar keeps for the peer.
func (p *Peer) Account() *Account { return &p.account }

// Out returns the frames to the peer.
func (p *Peer) Out() *Outbox { return &p.out }

// Credit returns the eager bytes that each side lets the other send.
func (p *Peer) Credit() *Credit { return &p.credit }

// Arrived returns the number of the last frame that has come in order.
func (p *Peer) Arrived() uint64 { return p.arrivals.Last() }

// Current returns the number of the frame that is being taken, or was taken last.
func (p *Peer) Current() uint64 { return p.current }

// Placing returns the frame whose payload is being placed, and its destination; false: there is
// none.
func (p *Peer) Placing() (h *wire.Header, at link.Ref, ok bool) {
	return &p.in.head, p.in.dst, p.in.active
}

// Redirect changes the destination of the payload that is being placed.
func (p *Peer) Redirect(at link.Ref) { p.in.dst = at }

// Abandon gives up the payload that is being placed.
func (p *Peer) Abandon() { p.in.active, p.in.head, p.in.dst = false, wire.Header{}, link.Ref{} }

// Owes reports whether frames have arrived that are still to be acknowledged.
func (p *Peer) Owes() bool { return p.greet || p.arrivals.Untold() }

// ByRing reports whether a frame would go by remote write into the peer's ring.
func (p *Peer) ByRing(f *link.Frame) bool { return p.rings.out.IsOpen() && p.rings.out.Fits(f) }

// SetUnannounced sets whether Handler.Announce is called before the next frame.
func (p *Peer) SetUnannounced(is bool) { p.unannounced = is }

// Wall lets frames after the last one wait: the peer is in an earlier generation (P§9).
func (p *Peer) Wall() { p.wall = p.out.Last() }

// SetWalled sets whether the wall is in effect.
func (p *Peer) SetWalled(is bool) { p.walled = is }

// Pass lets the last frame go although the peer is walled, unless others wait before it.
func (p *Peer) Pass() {
	if p.wall+1 == p.out.Last() {
		p.wall++
	}
}

// Behind reports whether frames wait behind the wall.
func (p *Peer) Behind() bool { return p.out.Last() > p.wall }
