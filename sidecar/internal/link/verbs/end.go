package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
)

// A tag names a connection in the ids of its completions: its place, and how often
// the place was used before, so that late ones of another are known.
const (
	tagBits  = 16
	tagIndex = 1<<tagBits - 1
)

// End is this side's end of a connection that is being made. Prepare, Offer and
// Connect are for the goroutine that makes it; Link.Join hands it over.
type End struct{ c *conn }

// errPlaces says that no more connections are possible.
var errPlaces = errors.New("no place for another queue pair")

// Prepare makes a queue pair that may be connected, with its receives posted.
func (l *Link) Prepare() (*End, error) {
	if gone := l.dead.Load(); gone != nil {
		return nil, *gone
	}
	tag, err := l.takeTag()
	if err != nil {
		return nil, fmt.Errorf("verbs: %w", err)
	}
	c := &conn{l: l, tag: tag, fd: -1, cut: -1, credit: newCredit(), asked: map[uint32]*lane{}, answered: map[uint32]*lane{}}
	err = c.prepare()
	if err != nil && l.makeRoom() {
		err = c.prepare()
	}
	if err != nil {
		l.returnTag(c)
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
	if c.pair, err = l.nic.newPair(c.tag, l.sharedQueue, mayRead|mayWrite); err != nil {
		return fmt.Errorf("queue pair: %w", err)
	}
	l.by[c.tag&tagIndex].Store(c) // completions may come from now on
	if l.shared == nil {
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

func (l *Link) takeTag() (uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tags) == 0 {
		return 0, fmt.Errorf("%w: %d exist", errPlaces, len(l.by))
	}
	i := l.tags[0]
	l.tags = l.tags[1:]
	l.gens[i]++
	return uint32(l.gens[i])<<tagBits | uint32(i), nil
}

func (l *Link) returnTag(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := c.tag & tagIndex
	l.by[i].Store(nil)
	if l.fresh[c.local.pair] == c { // its number may be another's by now
		delete(l.fresh, c.local.pair)
	}
	l.tags = append(l.tags, int32(i)) // the last to be used again
}
