package sim

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// access is a remote read or write in flight. Its pieces move at random times, so that it
// overtakes frames and frames overtake it.
type access struct {
	from, to *port
	token    uint64
	local    link.Ref
	mine     lentAddr // address of local, if it is lent
	lane     *lane    // queue pair of the access, if its memory is lent
	key      link.Key
	notify   uint64
	write    bool
	behind   *cast  // cast that must be placed before a write begins; nil: none
	pieces   []span // pieces that have not moved yet
	next     int64  // when the next piece moves, or the end is reported
	err      error
}

// span is a part of an access.
type span struct{ off, n uint64 }

// event is an event that a port reports to its engine at the next Poll, before the loss of a
// connection.
type event struct {
	peer   link.Peer
	kind   eventKind
	number uint64
	err    error
}

type eventKind uint8

const (
	eventWritten   eventKind = iota // an access of the peer's is complete here
	eventDone                       // an access of this port has ended
	eventDelivered                  // frames up to number are delivered
)

// accessDelay bounds the pause before each step of an access, in nanoseconds.
const accessDelay = 30_000

// Register does what Expose does, for a message. The bytes that are registered in one turn are
// bounded by RegisterMax of the link.
func (p *port) Register(ref link.Ref) (k link.Key, err error) {
	defer func() { p.noteKey("register", ref, k, err) }()
	if d := p.lenders[ref.Region]; d != nil {
		return p.registerLent(d, ref)
	}
	if most := p.net.caps.RegisterMax; most > 0 && ref.Len > most && ref.Region >= core.RegionFirst && p.net.parts {
		p.net.fault = fmt.Sprintf("pod %d registers %d bytes at once, at most %d may be", p.self, ref.Len, most)
	} else if most > 0 && p.registered > 0 && p.registered+ref.Len > most {
		p.net.late++
		return link.Key{}, link.ErrLater
	}
	p.registered += ref.Len
	return p.Expose(ref)
}

// Expose makes ref accessible under a random key. It fails at random times, as it does if
// memory cannot be pinned.
func (p *port) Expose(ref link.Ref) (k link.Key, err error) {
	defer func() { p.noteKey("expose", ref, k, err) }()
	if !p.net.faultless && p.net.rng.IntN(20) == 0 {
		return link.Key{}, fmt.Errorf("simulated: no more memory can be pinned")
	}
	k = link.Key{Key: p.net.rng.Uint64() | 1, Addr: p.net.rng.Uint64N(1 << 40)}
	p.keys[k.Key] = registration{addr: k.Addr, ref: ref}
	return k, nil
}

// registration is accessible memory: ref, whose first byte has the address addr.
type registration struct {
	addr uint64
	ref  link.Ref
	lent lentAddr // address of ref, if it is lent
}

// Deregister ends a registration at once.
func (p *port) Deregister(k link.Key) {
	p.noteKey("deregister", link.Ref{}, k, nil)
	if _, ok := p.keys[k.Key]; !ok {
		p.net.fault = fmt.Sprintf("pod %d deregisters a key that is not registered", p.self)
	}
	delete(p.keys, k.Key)
}

// Read starts a read of a peer's memory.
func (p *port) Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error {
	return p.start(peer, &access{token: token, local: dst, key: src})
}

// Write starts a write to a peer's memory.
func (p *port) Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	return p.start(peer, &access{token: token, local: src, key: dst, notify: notify, write: true})
}

func (p *port) start(peer link.Peer, a *access) error {
	p.net.note("access", uint64(p.self), uint64(peer), a.token, uint64(a.local.Region), a.local.Off, a.local.Len, a.key.Key, a.key.Addr, a.notify)
	l := p.usable(peer)
	if l == nil {
		return fmt.Errorf("%w: no connection to pod %d", link.ErrBroken, peer)
	}
	a.from, a.to = p, p.net.ports[peer]
	if err := p.startLent(l, a); err != nil {
		return err
	}
	a.pieces = p.net.cut(a.local.Len)
	a.next = p.net.now + p.net.rng.Int64N(accessDelay)
	if a.write {
		a.behind = lastCast(l.flows[endIndex(peer, p.self)])
	}
	l.accesses = append(l.accesses, a)
	return nil
}

// cut divides size bytes into pieces, in random order if the links do not place in order.
func (n *network) cut(size uint64) []span {
	var pieces []span
	for off := uint64(0); off < size; {
		k := min(size-off, 1+n.rng.Uint64N(size))
		pieces = append(pieces, span{off, k})
		off += k
	}
	if !n.caps.InOrder {
		n.rng.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	}
	return pieces
}

// move does the next step of each access that is due.
func (n *network) move() {
	n.lossy.pass(n.now)
	n.landDue()
	n.placeCasts()
	for i := range len(n.ports) * len(n.ports) {
		l := n.lines[[2]link.Peer{link.Peer(i / len(n.ports)), link.Peer(i % len(n.ports))}]
		if l == nil {
			continue
		}
		left := l.accesses[:0]
		var busy [2]bool // by end: an earlier write is in flight, for which later ones wait
		for _, a := range l.accesses {
			waits := a.from.frozen || a.to.frozen || a.write && n.caps.Ordered && busy[endIndex(a.from.self, a.to.self)] || a.behind != nil && !a.behind.placed
			if waits || a.next > n.now || !n.advance(a) {
				left = append(left, a)
				busy[endIndex(a.from.self, a.to.self)] = busy[endIndex(a.from.self, a.to.self)] || a.write
			}
		}
		l.accesses = left
	}
}

// advance does the next step of an access and reports whether it was the last.
func (n *network) advance(a *access) bool {
	a.next = n.now + n.rng.Int64N(accessDelay)
	if len(a.pieces) == 0 || a.err != nil {
		if a.write {
			a.to.settled()
		}
		a.from.events = append(a.from.events, event{a.to.self, eventDone, a.token, a.err})
		return true
	}
	whole, lent, err := a.to.resolve(a.key, a.local.Len)
	if err != nil {
		a.err = err
		if !n.mayReclaim {
			n.fault = fmt.Sprintf("pod %d accesses memory of pod %d: %v", a.from.self, a.to.self, err)
		}
		return false
	}
	if n.failLane(a) {
		return false
	}
	part := a.pieces[0]
	a.pieces = a.pieces[1:]
	mine, err := a.from.bytes(a.local, a.mine, part)
	theirs, err2 := a.to.bytes(whole, lent, part)
	if a.err = errors.Join(err, err2); a.err != nil {
		return false
	}
	if !a.write {
		copy(mine, theirs)
		return false
	}
	copy(theirs, mine)
	a.to.written(whole, a.notify)
	if len(a.pieces) == 0 && a.notify != 0 && n.caps.Notify {
		// The target is notified even if the connection breaks before the origin learns of
		// the end.
		a.to.events = append(a.to.events, event{a.from.self, eventWritten, a.notify, nil})
	}
	return false
}

// resolve returns the registered memory of n bytes at k.
func (p *port) resolve(k link.Key, n uint64) (link.Ref, lentAddr, error) {
	r, ok := p.keys[k.Key]
	off := k.Addr - r.addr
	if !ok || off > r.ref.Len || n > r.ref.Len-off {
		return link.Ref{}, lentAddr{}, fmt.Errorf("%w: %d bytes at %d", link.ErrKey, n, k.Addr)
	}
	return r.ref.Slice(off, n), r.lent.from(off), nil
}

// abort ends the accesses of a lost connection, some of whose pieces have moved.
func (l *line) abort() {
	for _, a := range l.accesses {
		a.from.events = append(a.from.events, event{a.to.self, eventDone, a.token, fmt.Errorf("%w: simulated", link.ErrBroken)})
	}
	l.accesses = nil
}

// reportEvents reports the events of the port to sink.
func (p *port) reportEvents(sink link.Sink) int {
	events := p.events
	p.events = nil
	for _, e := range events {
		switch e.kind {
		case eventDone:
			sink.Done(e.peer, e.number, e.err)
		case eventWritten:
			sink.Written(e.peer, e.number)
		case eventDelivered:
			sink.Delivered(e.peer, e.number)
		}
	}
	return len(events)
}
