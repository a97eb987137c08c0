package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// A tag names a connection in the ids of its completions: its place, and how often
// the place was used before, so that late ones of another are known.
const (
	tagBits  = 16
	tagIndex = 1<<tagBits - 1
)

// places are the connections that the completion queue has room for, by their tags. The
// goroutines that make connections take them, and give back the ends that the link does not
// take over: mu is of these, and by, dead and anyGiven are read without it.
type places struct {
	by       []atomic.Pointer[conn]
	dead     atomic.Pointer[error] // Link.gone, for Prepare
	anyGiven atomic.Bool           // given has some, and bell has rung
	bell     int                   // readable: an end was given up; -1: none

	mu     sync.Mutex
	tags   []int32 // free ones
	gens   []uint16
	fresh  map[uint32]*conn // that share receives, by the number of their queue pair, not taken over yet
	given  []*conn          // given up, to be ended
	closed bool             // written by Link.Close alone
}

func (p *places) open(n int) {
	p.gens, p.by = make([]uint16, n), make([]atomic.Pointer[conn], n)
	for i := range n {
		p.tags = append(p.tags, int32(i))
	}
}

// End is this side's end of a connection that is being made. Prepare, Offer and
// Connect are for the goroutine that makes it; Link.Join hands it over.
type End struct{ c *conn }

// errPlaces says that no more connections are possible.
var errPlaces = errors.New("no place for another queue pair")

// Prepare makes a queue pair that may be connected, with its receives posted.
func (l *Link) Prepare() (*End, error) {
	if gone := l.places.dead.Load(); gone != nil {
		return nil, *gone
	}
	tag, err := l.places.take()
	if err != nil {
		return nil, fmt.Errorf("verbs: %w", err)
	}
	c := &conn{l: l, tag: tag, fd: -1, cut: -1, credit: newCredit(), lanesOf: lanesOf{asked: map[uint32]*lane{}, answered: map[uint32]*lane{}}}
	err = c.prepare()
	if err != nil && l.makeRoom() {
		err = c.prepare()
	}
	if err != nil {
		l.places.giveBack(c)
		return nil, fmt.Errorf("verbs: %s: %w", l.port.Device, err)
	}
	return &End{c: c}, nil
}

// makeRoom has the turn end registrations that nobody uses now, for what a connection
// takes: a cache that has learnt the limit of locked memory is full up to that. false:
// there are none.
func (l *Link) makeRoom() (some bool) {
	if l.cfg.InTurn == nil {
		return false
	}
	err := l.cfg.InTurn(func() { some = l.known.chooser.Yield(recvSlots * slotBytes) })
	return err == nil && some
}

func (c *conn) prepare() (err error) {
	l := c.l
	if c.pair, err = l.nic.newPair(c.tag, l.sharing.queue, mayRead|mayWrite); err != nil {
		return fmt.Errorf("queue pair: %w", err)
	}
	l.places.by[c.tag&tagIndex].Store(c) // completions may come from now on
	if l.sharing.receives == nil {
		if err = c.prepareReceives(); err != nil {
			return errors.Join(err, c.pair.destroy())
		}
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	p := &l.port
	c.local = offer{
		fabric: p.Fabric, mtu: p.MTU, reads: p.Reads, lid: p.LID, slots: recvSlots, slotLen: slotBytes,
		pair: c.pair.number(), packet: binary.LittleEndian.Uint32(b[:]) & numberMax, gid: p.GID.As16(), device: p.Device, lanes: l.cfg.Lends,
	}
	return nil
}

// prepareReceives posts receives of c's own.
func (c *conn) prepareReceives() error {
	r, err := newReceives(c.l.nic, recvSlots, recvSlots/2)
	if err != nil {
		return err
	}
	c.receives, c.open = r, recvSlots
	if err := r.use(c.pair, uint64(c.tag)<<32|idReceive); err != nil {
		return errors.Join(err, r.close())
	}
	return nil
}

// Offer is what the other side's Connect needs.
func (e *End) Offer() []byte { return e.c.local.encode() }

// Connect makes the queue pair ready, with the other side's offer.
func (e *End) Connect(raw []byte) error {
	remote, err := parseOffer(raw)
	if err == nil {
		err = e.c.local.matches(&remote)
	}
	if err == nil {
		e.c.l.expect(e.c)
		err = e.c.pair.connect(&e.c.local, &remote)
	}
	if err != nil {
		return fmt.Errorf("verbs: %w", err)
	}
	e.c.remote, e.c.inOrder = remote, e.c.pair.inOrder()
	return nil
}

// Close gives up an end that no link has taken over; that of a closed link is
// given up already. One that shares receives is ended by the engine, when it looks next:
// what came for it lies in slots that others need.
func (e *End) Close() error {
	if !e.c.l.giveUp(e.c) {
		e.c.once.Do(e.c.release)
	}
	return nil
}

// take is the tag of a place that is free.
func (p *places) take() (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tags) == 0 {
		return 0, fmt.Errorf("%w: %d exist", errPlaces, len(p.by))
	}
	i := p.tags[0]
	p.tags = p.tags[1:]
	p.gens[i]++
	return uint32(p.gens[i])<<tagBits | uint32(i), nil
}

// giveBack frees the place of a connection.
func (p *places) giveBack(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := c.tag & tagIndex
	p.by[i].Store(nil)
	if p.fresh[c.local.pair] == c { // its number may be another's by now
		delete(p.fresh, c.local.pair)
	}
	p.tags = append(p.tags, int32(i)) // the last to be used again
}

// of is the connection of a tag; nil: it is gone.
func (p *places) of(tag uint32) *conn {
	c := p.by[tag&tagIndex].Load()
	if c == nil || c.tag != tag {
		return nil
	}
	return c
}

// close makes sure that no end is given up any more.
func (p *places) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}
