package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
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
	c := &conn{l: l, tag: tag, fd: -1, cut: -1, credit: newCredit()}
	if err := c.prepare(); err != nil {
		l.returnTag(c)
		return nil, fmt.Errorf("verbs: %s: %w", l.port.Device, err)
	}
	return &End{c: c}, nil
}

func (c *conn) prepare() (err error) {
	l := c.l
	if c.recv, err = unix.Mmap(-1, 0, recvSlots*slotBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return fmt.Errorf("memory for receives: %w", err)
	}
	if c.recvAt, err = l.nic.register(c.recv, 0, false); err != nil {
		return errors.Join(fmt.Errorf("registering memory for receives: %w", err), unix.Munmap(c.recv))
	}
	if c.pair, err = l.nic.newPair(c.tag); err != nil {
		return errors.Join(fmt.Errorf("queue pair: %w", err), l.nic.deregister(c.recvAt), unix.Munmap(c.recv))
	}
	l.by[c.tag&tagIndex].Store(c) // completions may come from now on
	c.open = recvSlots
	if err = c.pair.receive(c.recvAt, 0, recvSlots); err != nil {
		return errors.Join(fmt.Errorf("posting receives: %w", err), c.pair.destroy(), l.nic.deregister(c.recvAt), unix.Munmap(c.recv))
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	p := &l.port
	c.local = offer{
		fabric: p.Fabric, mtu: p.MTU, reads: p.Reads, lid: p.LID, slots: recvSlots, slotLen: slotBytes,
		pair: c.pair.number(), packet: binary.LittleEndian.Uint32(b[:]) & numberMax, gid: p.GID.As16(), device: p.Device,
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
		err = e.c.pair.connect(&e.c.local, &remote)
	}
	if err != nil {
		return fmt.Errorf("verbs: %w", err)
	}
	e.c.remote, e.c.inOrder = remote, e.c.pair.inOrder()
	return nil
}

// Close gives up an end that no link has taken over; that of a closed link is
// given up already.
func (e *End) Close() error {
	e.c.once.Do(e.c.release)
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
	l.tags = append(l.tags, int32(i)) // the last to be used again
}
