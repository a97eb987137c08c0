// Package sim runs real engines over a simulated network in virtual time, with
// simulated applications that speak the shared-memory contract. A seed decides
// everything: delays, broken connections, killed sidecars, and what the
// applications send.
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
	rng    *rand.Rand
	now    int64
	ports  []*port
	lines  map[[2]link.Peer]*line
	caps   link.Caps
	calm   bool   // no faults but those that are asked for
	rude   bool   // windows are changed while they are read
	deadly bool   // somebody dies, and takes back memory that others reach for
	trace  *Trace // nil: none
	fault  string // what a link saw that no correct core does

	luck *rand.Rand // of deliveries, so that those of a seed before there were any stay
	lies bool       // links tell that frames have come which may be lost
	told int        // deliveries

	parts bool // what is registered at once is bounded by what the links say
	late  int  // registrations that were put off
	more  int  // parts of messages that others followed

	gathers  bool // small messages of arenas go without a copy, now and then
	gathered int

	casting *rand.Rand // of casts; nil: links take none
	casts   int
	looks   int // words about looks

	lending *rand.Rand // of all that is lent; nil: nothing is
	cheats  bool       // applications say what is not true of what they lend
	lent    lentCount
}

// line is the connection between two sidecars.
type line struct {
	generation int
	up         bool
	dialAt     int64        // when the next connection is made; 0: nobody has asked
	flows      [2][]*packet // by the index of the receiving end
	accesses   []*access
	lanes      map[laneEnds]*lane // of this connection
}

// packet is a frame under way. The link holds the payload by reference, as real
// ones do, and remembers what it was.
type packet struct {
	head    wire.Header
	payload []byte // the core's memory, or a copy of Inline
	was     []byte
	at      int64 // when it arrives
	landed  bool  // its sender has been told so: whatever breaks, it is handed over
	cast    *cast // no frame; nil: a frame
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
	sink     link.Sink               // of the last Poll
	landed   map[link.Peer][]*packet // of connections that are gone, to be handed over
	full     map[link.Peer]bool      // a frame was not taken
	quiet    int64                   // when a frame was first written into a ring here since its engine sleeps, of which nothing tells; 0: not yet
	dead     bool
	frozen   bool              // nothing of it moves any more, its device neither
	byes     map[link.Peer]int // generations of connections on which it has said goodbye
	turn     uint64            // bytes registered since the last Poll
	lends    bool              // its job allows exposure
	lenders  map[link.Region]*lender
	lentKeys map[uint64]link.Region
}

// backlog bounds the packets under way in one direction.
const backlog = 24

func newNetwork(rng *rand.Rand, pods int) *network {
	n := &network{rng: rng, lines: map[[2]link.Peer]*line{}, caps: drawCaps(rng), luck: rand.New(rand.NewPCG(0, uint64(pods)))}
	for i := range pods {
		n.ports = append(n.ports, &port{
			net: n, self: link.Peer(i), attached: map[link.Peer]int{}, down: map[link.Peer]bool{}, keys: map[uint64]registration{},
			landed: map[link.Peer][]*packet{}, lenders: map[link.Region]*lender{}, lentKeys: map[uint64]link.Region{}, byes: map[link.Peer]int{},
			full: map[link.Peer]bool{},
		})
	}
	return n
}

// drawCaps decides what the links of a job can do, so that every protocol that
// depends on it runs under every fault.
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

// drawParts decides how much may be registered at once, from a source of its own.
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

// end is the index of peer p's end of the line between p and q.
func end(p, q link.Peer) int {
	if p < q {
		return 0
	}
	return 1
}

// breakLine loses the connection and everything on it.
func (n *network) breakLine(a, b link.Peer) {
	l := n.line(a, b)
	if !l.up {
		return
	}
	l.up = false
	n.settle(a, b, l)
	n.settle(b, a, l)
	l.flows, l.lanes = [2][]*packet{}, nil
	l.abort()
	n.ports[a].down[b], n.ports[b].down[a] = true, true
}

// dial makes the connections whose time has come and tells the ends.
func (n *network) dial(connected func(self, peer link.Peer, generation int)) {
	// In order of the pods: a map's order would not repeat with the seed.
	for i := range len(n.ports) * len(n.ports) {
		k := [2]link.Peer{link.Peer(i / len(n.ports)), link.Peer(i % len(n.ports))}
		l := n.lines[k]
		if l == nil || l.dialAt == 0 || l.dialAt > n.now || n.ports[k[0]].gone() || n.ports[k[1]].gone() {
			continue
		}
		n.breakLine(k[0], k[1]) // an end that has not noticed yet will now
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

// Abilities are what the simulated link can do; what of it is used with which peer, its
// capabilities say.
func (p *port) Abilities() link.Abilities {
	return link.Abilities{
		Attach: p.Attach, PeerCaps: p.PeerCaps,
		Remote: p, Expose: p.Expose, Caster: p, Gatherer: p, Lender: p,
		DropRegion: p.DropRegion,
	}
}

// Attach takes a connection; fd is its generation.
func (p *port) Attach(peer link.Peer, fd int) error {
	if len(p.landed[peer]) > 0 {
		p.tell(p.sink) // what was written before them (seed 3091)
	}
	p.handOver(p.sink, peer)
	p.attached[peer] = fd
	p.down[peer] = p.net.line(p.self, peer).generation != fd || !p.net.line(p.self, peer).up
	return nil
}

// Caps says what the link can do.
func (p *port) Caps() link.Caps { return p.net.caps }

// gone reports that nobody answers any more.
func (p *port) gone() bool { return p.dead || p.frozen }

// usable is the line to peer if the engine has its present connection.
func (p *port) usable(peer link.Peer) *line {
	l := p.net.line(p.self, peer)
	if !l.up || p.attached[peer] != l.generation || p.down[peer] {
		return nil
	}
	return l
}

// Post sends frames with random delays that keep their order.
func (p *port) Post(peer link.Peer, frames []*link.Frame) int {
	l := p.usable(peer)
	if l == nil {
		return 0
	}
	flow := &l.flows[end(peer, p.self)]
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
			p.byes[peer] = l.generation
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
		if p.net.lies && p.net.luck.IntN(4) == 0 {
			p.events = append(p.events, event{peer: peer, kind: eventCame, number: x.head.Seq})
		}
		if k := len(*flow); k > 0 {
			x.at = max(x.at, (*flow)[k-1].at)
		}
		*flow = append(*flow, x)
		n++
	}
	return n
}

// Poll delivers what has arrived, small payloads whole and large ones placed.
func (p *port) Poll(sink link.Sink) int {
	p.sink, p.turn = sink, 0
	work := p.tell(sink)
	for i := range p.net.ports {
		peer := link.Peer(i)
		if peer == p.self {
			continue
		}
		if p.down[peer] {
			work += p.handOver(sink, peer)
			p.down[peer] = false
			p.attached[peer] = -1
			sink.Down(peer, fmt.Errorf("%w: simulated", link.ErrBroken))
			work++
			continue
		}
		for l := p.usable(peer); l != nil; l = p.usable(peer) {
			flow := &l.flows[end(p.self, peer)]
			if len(*flow) == 0 || (*flow)[0].at > p.net.now {
				break
			}
			x := (*flow)[0]
			*flow = (*flow)[1:]
			work++
			p.net.came(p.self, peer, x)
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

// placeMin is the size from which payloads are placed.
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
	if !p.net.calm && p.net.rng.IntN(50) == 0 && !x.landed { // half of it came; the core will be asked again
		copy(dst[:len(dst)/2], x.was)
		p.net.breakLine(p.self, peer)
		return nil
	}
	copy(dst, x.was)
	return sink.Placed(peer)
}

// unchanged finds fault with a payload that is not what was posted, as long as its link
// refers to it.
func (n *network) unchanged(x *packet, from link.Peer) {
	if !x.landed && !bytes.Equal(x.payload, x.was) && !(n.rude && x.head.Type == wire.Got) {
		n.fault = fmt.Sprintf("payload of %v frame %d from pod %d changed before it was acknowledged, or had come", x.head.Type, x.head.Seq, from)
	}
}

// Forget drops the connection, and what is under way on it.
func (p *port) Forget(peer link.Peer) {
	if p.usable(peer) != nil {
		p.net.breakLine(p.self, peer)
	}
	p.attached[peer] = -1
	p.down[peer] = false
	delete(p.landed, peer)
}

// Close gives back the contexts of applications.
func (p *port) Close() error {
	for _, d := range p.lenders {
		_ = d.context.Close() // never fails
	}
	clear(p.lenders)
	return nil
}
