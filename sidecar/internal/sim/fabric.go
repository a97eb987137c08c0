// Package sim runs real engines over a simulated network in virtual time, with simulated
// applications that use the shared-memory contract. A seed determines everything: delays,
// broken connections, killed sidecars, and the operations of the applications.
//
// A job is created (newWorld), gets its engines and sessions (boot) and its operations
// (plan), and runs in steps until all applications have finished (run). It then waits for
// acknowledgements and checks that nothing is left (settle), and is closed (finish). The
// applications check each message, the network checks each access to memory, and a Trace
// records the actions of the engines. There are several kinds of jobs (Kinds); tests of the
// engine, and make replay, run them.
package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// network is the simulated network of one job.
type network struct {
	rng        *rand.Rand
	now        int64
	ports      []*port
	lines      map[[2]link.Peer]*line
	caps       link.Caps
	lossy      *lossy // the engines use the link ether over it; nil: they use the ports
	faultless  bool   // no random faults
	misuse     bool   // windows are changed while they are read
	mayReclaim bool   // a process may end and its memory be reclaimed while others access it
	trace      *Trace // nil: none
	fault      string // first error of a core that a link has seen

	// deliveryRNG is the source for deliveries, so that the rest of a seed's job does not
	// depend on them.
	deliveryRNG   *rand.Rand
	falseDelivery bool // links report the delivery of frames that may be lost
	delivered     int  // reported deliveries

	parts bool // registrations in one turn are bounded by RegisterMax of the links
	late  int  // registrations that were deferred
	more  int  // parts of messages that were followed by another part

	gathers  bool // some small messages in arenas are sent without a copy
	gathered int

	castRNG *rand.Rand // source for casts; nil: links have no casts
	casts   int
	looks   int // Look frames

	lendRNG *rand.Rand // source for lent memory; nil: no memory is lent
	cheats  bool       // applications give wrong addresses and keys of lent memory
	lent    lentCount
}

// line is the connection between two sidecars.
type line struct {
	generation int
	up         bool
	dialAt     int64        // when the next connection is made; 0: no connection is requested
	flows      [2][]*packet // packets in flight, indexed by the receiving end
	accesses   []*access
	lanes      map[laneEnds]*lane // lanes of this connection
}

// packet is a frame or a cast in flight. The link refers to the payload, as real links do,
// and keeps a copy to detect changes.
type packet struct {
	head    wire.Header
	payload []byte // the core's memory, or a copy of Inline
	was     []byte // payload when the frame was posted
	at      int64  // arrival time
	landed  bool   // the delivery is reported: the peer's engine gets the packet even if the connection breaks
	cast    *cast  // nil: a frame
}

// port is one sidecar's end of the network: its link.
type port struct {
	net      *network
	self     link.Peer
	memory   link.Memory
	attached map[link.Peer]int // generation of the connection that the engine has
	down     map[link.Peer]bool
	keys     map[uint64]registration
	events   []event
	sink     link.Sink               // sink of the last Poll
	landed   map[link.Peer][]*packet // delivered frames of lost connections, for the engine
	full     map[link.Peer]bool      // a frame was not accepted
	// unnotifiedAt is the time of the first write without notification into a ring here while
	// the engine sleeps; 0: none.
	unnotifiedAt int64
	dead         bool
	frozen       bool              // the pod has stopped, with its device
	goodbyes     map[link.Peer]int // generations of connections on which it has sent Goodbye
	registered   uint64            // bytes registered since the last Poll
	lends        bool              // its job allows exposure
	lenders      map[link.Region]*lender
	lentKeys     map[uint64]link.Region
}

// backlog bounds the packets in flight in one direction, so that engines meet a full link.
const backlog = 24

func newNetwork(rng *rand.Rand, pods int) *network {
	n := &network{rng: rng, lines: map[[2]link.Peer]*line{}, caps: drawCaps(rng), deliveryRNG: rand.New(rand.NewPCG(0, uint64(pods)))}
	for i := range pods {
		n.ports = append(n.ports, &port{
			net: n, self: link.Peer(i), attached: map[link.Peer]int{}, down: map[link.Peer]bool{}, keys: map[uint64]registration{},
			landed: map[link.Peer][]*packet{}, lenders: map[link.Region]*lender{}, lentKeys: map[uint64]link.Region{}, goodbyes: map[link.Peer]int{},
			full: map[link.Peer]bool{},
		})
	}
	return n
}

// drawCaps draws the capabilities of the links of a job, so that each protocol that depends
// on them runs with each fault.
func drawCaps(rng *rand.Rand) link.Caps {
	c := link.Caps{Name: "sim", GatherMax: 1, EagerMax: 64 << 10}
	if rng.IntN(3) > 0 {
		c.Register = true
		c.Read, c.Write = rng.IntN(2) == 0, rng.IntN(2) == 0
		c.InOrder, c.Notify = rng.IntN(2) == 0, rng.IntN(2) == 0
		c.Ordered = rng.IntN(2) == 0
	}
	return c
}

// drawParts draws RegisterMax (link.Caps) for half of the seeds, from a random source of its
// own.
func (n *network) drawParts(seed uint64) {
	if rng := rand.New(rand.NewPCG(seed, 4)); rng.IntN(2) == 0 {
		n.caps.RegisterMax = 2<<10 + rng.Uint64N(1<<(8+rng.IntN(10)))
	}
}

func pair(a, b link.Peer) [2]link.Peer { return [2]link.Peer{min(a, b), max(a, b)} }

func (n *network) line(a, b link.Peer) *line {
	k := pair(a, b)
	if n.lines[k] == nil {
		n.lines[k] = new(line)
	}
	return n.lines[k]
}

// endIndex returns the index of p's end of the line between p and q.
func endIndex(p, q link.Peer) int {
	if p < q {
		return 0
	}
	return 1
}

// breakLine breaks the connection. Frames and accesses on it are lost.
func (n *network) breakLine(a, b link.Peer) {
	l := n.line(a, b)
	if !l.up {
		return
	}
	l.up = false
	n.lossy.cut(a, b)
	n.keepLanded(a, b, l)
	n.keepLanded(b, a, l)
	l.flows, l.lanes = [2][]*packet{}, nil
	l.abort()
	n.ports[a].down[b], n.ports[b].down[a] = true, true
}

// dial makes the connections that are due and reports them to both ends.
func (n *network) dial(connected func(self, peer link.Peer, generation int)) {
	// In order of the pods: a map's order would not repeat with the seed.
	for i := range len(n.ports) * len(n.ports) {
		k := [2]link.Peer{link.Peer(i / len(n.ports)), link.Peer(i % len(n.ports))}
		l := n.lines[k]
		if l == nil || l.dialAt == 0 || l.dialAt > n.now || n.ports[k[0]].unreachable() || n.ports[k[1]].unreachable() {
			continue
		}
		n.breakLine(k[0], k[1]) // so that both ends notice the end of the old connection
		l.dialAt = 0
		l.generation++
		l.up, l.flows = true, [2][]*packet{}
		connected(k[0], k[1], l.generation)
		connected(k[1], k[0], l.generation)
	}
}

// Connect implements engine.Dialer.
func (p *port) Connect(peer link.Peer) {
	p.net.note("connect", uint64(p.self), uint64(peer))
	if l := p.net.line(p.self, peer); l.dialAt == 0 {
		l.dialAt = p.net.now + p.net.rng.Int64N(2_000_000)
	}
}

// Cancel implements engine.Dialer.
func (p *port) Cancel(link.Peer) {}

// Abilities returns the abilities of the simulated link. The capabilities say which of them
// are used with a peer.
func (p *port) Abilities() link.Abilities {
	return link.Abilities{
		Attach: p.Attach, PeerCaps: p.PeerCaps,
		Remote: p, Expose: p.Expose, Caster: p, Gatherer: p, Lender: p,
		DropRegion: p.DropRegion,
	}
}

// Attach begins the use of a connection; fd is its generation.
func (p *port) Attach(peer link.Peer, fd int) error {
	if len(p.landed[peer]) > 0 {
		p.reportEvents(p.sink) // writes that ended before these frames (seed 3091)
	}
	p.deliverLanded(p.sink, peer)
	p.attached[peer] = fd
	p.down[peer] = p.net.line(p.self, peer).generation != fd || !p.net.line(p.self, peer).up
	return nil
}

// Caps returns the capabilities of the link.
func (p *port) Caps() link.Caps { return p.net.caps }

// unreachable reports whether the pod does not answer any more.
func (p *port) unreachable() bool { return p.dead || p.frozen }

// usable returns the line to peer, or nil if the engine does not have its current connection.
func (p *port) usable(peer link.Peer) *line {
	l := p.net.line(p.self, peer)
	if !l.up || p.attached[peer] != l.generation || p.down[peer] {
		return nil
	}
	return l
}

// Post sends frames with random delays, in order.
func (p *port) Post(peer link.Peer, frames []*link.Frame) int {
	l := p.usable(peer)
	if l == nil {
		return 0
	}
	flow := &l.flows[endIndex(peer, p.self)]
	n := 0
	for _, f := range frames {
		if len(*flow) >= backlog {
			p.full[peer] = true
			break
		}
		if f.Head.Type == wire.Look {
			p.net.looks++
		}
		if f.Head.Type == wire.Bye {
			p.goodbyes[peer] = l.generation
		}
		if f.Head.Type == wire.Pull && f.Head.Flags&wire.FlagMore != 0 {
			p.net.more++
		}
		p.noteFrame(peer, f)
		x := &packet{head: f.Head, at: p.net.now + p.net.rng.Int64N(30_000)}
		if f.Payload.Region != 0 {
			x.payload = p.memory.Bytes(f.Payload)[:f.Head.Length]
		} else {
			x.payload = bytes.Clone(f.Inline[:f.Head.Length])
		}
		x.was = bytes.Clone(x.payload)
		if p.net.falseDelivery && p.net.deliveryRNG.IntN(4) == 0 {
			p.events = append(p.events, event{peer: peer, kind: eventDelivered, number: x.head.Seq})
		}
		if k := len(*flow); k > 0 {
			x.at = max(x.at, (*flow)[k-1].at)
		}
		*flow = append(*flow, x)
		n++
	}
	return n
}

// Poll delivers the frames that have arrived: small payloads whole, large ones into the
// memory that Place returns.
func (p *port) Poll(sink link.Sink) int {
	p.sink, p.registered = sink, 0
	work := p.reportEvents(sink)
	for i := range p.net.ports {
		peer := link.Peer(i)
		if peer == p.self {
			continue
		}
		if p.down[peer] {
			work += p.deliverLanded(sink, peer)
			p.down[peer] = false
			p.attached[peer] = -1
			sink.Down(peer, fmt.Errorf("%w: simulated", link.ErrBroken))
			work++
			continue
		}
		for l := p.usable(peer); l != nil; l = p.usable(peer) {
			flow := &l.flows[endIndex(p.self, peer)]
			if len(*flow) == 0 || (*flow)[0].at > p.net.now {
				break
			}
			x := (*flow)[0]
			*flow = (*flow)[1:]
			work++
			p.net.landFrame(p.self, peer, x)
			if err := p.deliver(sink, peer, x); err != nil {
				p.net.fault = fmt.Sprintf("pod %d refused a frame of pod %d: %v", p.self, peer, err)
				p.net.breakLine(p.self, peer)
				p.Forget(peer)
				sink.Down(peer, fmt.Errorf("%w: %w", link.ErrProtocol, err))
				break
			}
		}
	}
	return work
}

// placeMin is the size of the smallest payload that is delivered by Place.
const placeMin = 2 << 10

func (p *port) deliver(sink link.Sink, peer link.Peer, x *packet) error {
	if x.cast != nil {
		p.takeCast(sink, peer, x.cast)
		return nil
	}
	p.net.unchanged(x, peer)
	if len(x.was) < placeMin {
		return sink.Deliver(peer, &x.head, x.was)
	}
	dst, err := sink.Place(peer, &x.head)
	if err != nil {
		return err
	}
	if !p.net.faultless && p.net.rng.IntN(50) == 0 && !x.landed { // half of it has arrived; the frame is repeated later
		copy(dst[:len(dst)/2], x.was)
		p.net.breakLine(p.self, peer)
		return nil
	}
	copy(dst, x.was)
	return sink.Placed(peer)
}

// unchanged sets the fault if a payload to which the link still refers has changed since it
// was posted.
func (n *network) unchanged(x *packet, from link.Peer) {
	if !x.landed && !bytes.Equal(x.payload, x.was) && !(n.misuse && x.head.Type == wire.Got) {
		n.fault = fmt.Sprintf("payload of %v frame %d from pod %d changed before it was acknowledged or delivered", x.head.Type, x.head.Seq, from)
	}
}

// Forget drops the connection with its frames in flight.
func (p *port) Forget(peer link.Peer) {
	if p.usable(peer) != nil {
		p.net.breakLine(p.self, peer)
	}
	p.attached[peer] = -1
	p.down[peer] = false
	delete(p.landed, peer)
}

// Close closes the contexts of applications.
func (p *port) Close() error {
	for _, d := range p.lenders {
		_ = d.context.Close() // never fails
	}
	clear(p.lenders)
	return nil
}
