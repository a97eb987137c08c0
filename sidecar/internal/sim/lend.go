package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// Memory that applications have registered themselves (link.Lender). The engine has no access
// to it, and a remote read from or into it uses a queue pair between two protection domains,
// a lane. A lane is made when it is first needed, and reads are refused until it is ready. If
// it fails, its reads fail.

// lentCount counts events of lent memory.
type lentCount struct {
	Reads   int // reads that were started
	Refused int // reads without a lane
	Broken  int // lanes that failed
	Copied  int // messages that the application supplied in chunks instead
	Ended   int // exposures that ended before their job
}

func (c *lentCount) add(d *lentCount) {
	c.Reads += d.Reads
	c.Refused += d.Refused
	c.Broken += d.Broken
	c.Copied += d.Copied
	c.Ended += d.Ended
}

// drawLending draws whether the links of a seed lend memory, from a source of its own: half of
// the links with remote reads do, and few others. Few jobs whose receives come first do, since
// a receive into exposed memory is not offered. In most jobs that lend memory and can read it,
// the protocol of large messages is one that reads.
func (w *world) drawLending() {
	rng, n := rand.New(rand.NewPCG(w.seed, 6)), w.net
	if k := rng.IntN(8); k > 3 || k > 0 && (!n.caps.Read || w.early) {
		return
	}
	n.lendRNG, n.cheats = rng, rng.IntN(4) == 0
	for _, p := range n.ports {
		p.lends = rng.IntN(6) > 0
	}
	if n.caps.Read && w.rdv != rendezvous.Put && w.rdv != rendezvous.PutNR && rng.IntN(4) > 0 {
		w.rdv = []rendezvous.Protocol{rendezvous.Auto, rendezvous.GetCQE, rendezvous.Get}[rng.IntN(3)]
	}
}

// RunExposed runs the job of a seed like Run, with applications that expose memory, links with
// remote reads, and more large messages.
func RunExposed(seed uint64) (covered Coverage, err error) { return newExposed(seed).job() }

func newExposed(seed uint64) *world {
	w := newWorld(seed)
	rng, n := rand.New(rand.NewPCG(seed, 7)), w.net
	n.caps.Register, n.caps.Read = true, true
	n.lendRNG, n.cheats = rng, rng.IntN(4) == 0
	for _, p := range n.ports {
		p.lends = rng.IntN(12) > 0
	}
	w.exposing, w.early, w.rdv = true, false, []rendezvous.Protocol{rendezvous.Auto, rendezvous.GetCQE, rendezvous.Get, rendezvous.Put}[rng.IntN(4)]
	return w
}

// context is the context of a device for one application, with its registrations.
type context struct {
	net    *network
	pieces map[uint32]*piece // pieces by key
	closed int
}

// piece is memory that an application has registered.
type piece struct {
	mem   []byte
	addr  uint64
	over  bool // the registration has ended
	early bool // the registration ended before the sidecar allowed its end
}

func (x *context) Grant() link.Grant { return link.Grant{FD: -1} }

func (x *context) Close() error {
	x.closed++
	return nil
}

// registeredBytes returns n bytes of registered memory, and sets the fault if they may not
// be accessed.
func (x *context) registeredBytes(at lentAddr, n uint64) ([]byte, error) {
	p := x.pieces[at.key]
	switch {
	case x.closed > 0:
		x.net.fault = "memory is accessed on a context that is closed"
	case p != nil && p.over && !p.early:
		x.net.fault = "memory is accessed whose exposure has ended"
	case p != nil && !p.over && at.addr >= p.addr && n <= uint64(len(p.mem)) && at.addr-p.addr <= uint64(len(p.mem))-n:
		return p.mem[at.addr-p.addr:][:n], nil
	case p == nil || !p.over:
		if !x.net.cheats {
			x.net.fault = fmt.Sprintf("%d bytes at %#x of key %d are accessed, which are not registered", n, at.addr, at.key)
		}
	}
	return nil, fmt.Errorf("%w: simulated: not registered", link.ErrBroken)
}

// lentAddr is an address in memory that is registered on a context. If the context is nil,
// the memory is the engine's.
type lentAddr struct {
	of   *context
	key  uint32
	addr uint64
}

func (x lentAddr) from(off uint64) lentAddr {
	x.addr += off
	return x
}

// lender is a region of lent memory.
type lender struct {
	context *context
	lent    map[uint32]link.Lent
}

func (d *lender) find(ref link.Ref) (lentAddr, bool) {
	m, ok := d.lent[uint32(ref.Off>>link.LentShift)]
	off := ref.Off & (1<<link.LentShift - 1)
	return lentAddr{d.context, m.Lkey, m.Addr + off}, ok && ref.Len <= m.Len && off <= m.Len-ref.Len
}

// bytes returns a part of ref, which is at x if it is lent.
func (p *port) bytes(ref link.Ref, x lentAddr, part span) ([]byte, error) {
	if x.of == nil {
		return p.memory.Bytes(ref.Slice(part.off, part.n)), nil
	}
	return x.of.registeredBytes(x.from(part.off), part.n)
}

// PeerCaps returns the capabilities with a peer: memory is lent only if both sides lend.
func (p *port) PeerCaps(peer link.Peer) link.Caps {
	c := p.net.caps
	c.Lent = p.lends && p.net.ports[peer].lends
	return c
}

var (
	errLends  = errors.New("simulated: the device is gone")
	errNotYet = errors.New("simulated: the lane is being made")
	errWrites = errors.New("simulated: lent memory is read, not written")
)

// Admit implements link.Lender. It fails at random times.
func (p *port) Admit(r link.Region, x link.Context) error {
	if p.net.lendRNG.IntN(20) == 0 {
		return errLends
	}
	p.lenders[r] = &lender{context: x.(*context), lent: map[uint32]link.Lent{}} // of mayExpose
	return nil
}

// Lend implements link.Lender. It fails at random times.
func (p *port) Lend(r link.Region, number uint32, m link.Lent) error {
	if _, there := p.lenders[r].lent[number]; there {
		p.net.fault = fmt.Sprintf("pod %d: memory %d is lent twice", p.self, number)
	}
	if p.net.lendRNG.IntN(30) == 0 {
		return errLends
	}
	p.lenders[r].lent[number] = m
	return nil
}

// Reclaim implements link.Lender.
func (p *port) Reclaim(r link.Region, number uint32) {
	if _, there := p.lenders[r].lent[number]; !there {
		p.net.fault = fmt.Sprintf("pod %d: memory %d is reclaimed and not lent", p.self, number)
	}
	delete(p.lenders[r].lent, number)
}

// DropRegion ends the loans of a region. No access may use them.
func (p *port) DropRegion(r link.Region) {
	d := p.lenders[r]
	if d == nil {
		return
	}
	delete(p.lenders, r)
	for _, l := range p.net.lines {
		for _, a := range l.accesses {
			if a.mine.of == d.context {
				p.net.fault = fmt.Sprintf("pod %d drops memory that is read into", p.self)
			}
		}
	}
	for _, x := range p.keys {
		if x.lent.of == d.context {
			p.net.fault = fmt.Sprintf("pod %d drops memory that has a key", p.self)
		}
	}
	_ = d.context.Close() // never fails
}

// registerLent returns a key of lent memory for a peer.
func (p *port) registerLent(d *lender, ref link.Ref) (link.Key, error) {
	at, ok := d.find(ref)
	if !ok {
		p.net.fault = fmt.Sprintf("pod %d registers %d bytes that are not lent", p.self, ref.Len)
		return link.Key{}, errLends
	}
	if !p.net.faultless && p.net.lendRNG.IntN(20) == 0 {
		return link.Key{}, errLends
	}
	k := link.Key{Key: p.net.lendRNG.Uint64() | 1, Addr: p.net.lendRNG.Uint64N(1 << 40)}
	p.keys[k.Key] = registration{addr: k.Addr, ref: ref, lent: at}
	p.lentKeys[k.Key] = ref.Region
	return k, nil
}

// laneEnds names the domains of a lane; 0 is a sidecar's own.
type laneEnds struct {
	from         link.Peer
	mine, theirs link.Region
}

// lane is a queue pair between two domains.
type lane struct {
	ends  laneEnds
	ready int64
}

// startLent sets the lane of an access whose memory is lent at one end or both.
func (p *port) startLent(l *line, a *access) error {
	d := p.lenders[a.local.Region]
	theirs, lent := a.to.lentKeys[a.key.Key]
	switch {
	case d == nil && !lent:
		return nil
	case !p.lends || !a.to.lends:
		p.net.fault = fmt.Sprintf("pods %d and %d do not both lend memory", p.self, a.to.self)
		return errLends
	case a.write:
		return errWrites
	}
	ends := laneEnds{from: p.self, theirs: theirs}
	if d != nil {
		ends.mine = a.local.Region
		var ok bool
		if a.mine, ok = d.find(a.local); !ok {
			p.net.fault = fmt.Sprintf("pod %d reads into %d bytes that are not lent", p.self, a.local.Len)
			return errLends
		}
	}
	if a.lane = l.lanes[ends]; a.lane == nil {
		if l.lanes == nil {
			l.lanes = map[laneEnds]*lane{}
		}
		a.lane = &lane{ends, p.net.now}
		if l.lanes[ends] = a.lane; p.net.lendRNG.IntN(2) == 0 {
			a.lane.ready += p.net.lendRNG.Int64N(100_000)
		}
	}
	if a.lane.ready > p.net.now {
		p.net.lent.Refused++
		return errNotYet
	}
	p.net.lent.Reads++
	return nil
}

// failLane fails the lane of an access, with all accesses on it, at random times.
func (n *network) failLane(a *access) bool {
	if a.lane == nil || n.faultless || n.lendRNG.IntN(16) > 0 {
		return false
	}
	n.lent.Broken++
	l := n.line(a.from.self, a.to.self)
	delete(l.lanes, a.lane.ends)
	for _, b := range l.accesses {
		if b.lane == a.lane {
			b.err = fmt.Errorf("%w: simulated: the lane has failed", link.ErrBroken)
		}
	}
	return true
}
