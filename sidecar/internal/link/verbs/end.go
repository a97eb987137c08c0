package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// A tag identifies a connection in the ids of its completions. It consists of the
// connection's index and a count of the index's earlier uses, so that late completions of
// an earlier connection are detected.
const (
	tagBits  = 16
	tagIndex = 1<<tagBits - 1
)

// connTable holds the connections for which the completion queue has room, by their tags.
// The goroutines that make connections allocate entries, and return Endpoints that the
// link does not join. mu guards the fields below it; by, dead and anyReturned are read
// without it.
type connTable struct {
	by          []atomic.Pointer[conn]
	dead        atomic.Pointer[error] // Link.lost, for Prepare
	anyReturned atomic.Bool           // returned is not empty, and bell is readable
	bell        int                   // readable: an Endpoint was returned; -1: none

	mu       sync.Mutex
	tags     []int32          // free indexes
	gens     []uint16         // by index: count of uses
	unjoined map[uint32]*conn // connections that share receives and are not joined yet, by the number of their queue pair
	returned []*conn          // Endpoints closed without Join, to be ended by the engine
	closed   bool             // written by Link.Close only
}

func (t *connTable) open(n int) {
	t.gens, t.by = make([]uint16, n), make([]atomic.Pointer[conn], n)
	for i := range n {
		t.tags = append(t.tags, int32(i))
	}
}

// Endpoint is this side of a connection that is being made. The goroutine that makes the
// connection calls Prepare, Offer and Connect; Link.Join takes the result over.
type Endpoint struct{ c *conn }

// errConns means that no more connections are possible.
var errConns = errors.New("the completion queue has no room for another queue pair")

// Prepare makes a queue pair that may be connected, with its receives posted.
func (l *Link) Prepare() (*Endpoint, error) {
	if gone := l.table.dead.Load(); gone != nil {
		return nil, *gone
	}
	tag, err := l.table.alloc()
	if err != nil {
		return nil, fmt.Errorf("verbs: %w", err)
	}
	c := &conn{l: l, tag: tag, fd: -1, cutReg: -1, credit: newCredit(), lentQueues: lentQueues{asked: map[uint32]*lentQP{}, answered: map[uint32]*lentQP{}}}
	err = c.prepare()
	if err != nil && l.makeRoom() {
		err = c.prepare()
	}
	if err != nil {
		l.table.free(c)
		return nil, fmt.Errorf("verbs: %s: %w", l.port.Device, err)
	}
	return &Endpoint{c: c}, nil
}

// makeRoom makes the engine end unused registrations, to free the memory that a
// connection needs: a cache that has reached the limit of locked memory fills it. It
// returns false if none were ended.
func (l *Link) makeRoom() (some bool) {
	if l.cfg.InTurn == nil {
		return false
	}
	err := l.cfg.InTurn(func() { some = l.regs.chooser.Yield(recvSlots * slotBytes) })
	return err == nil && some
}

func (c *conn) prepare() (err error) {
	l := c.l
	if c.pair, err = l.nic.newPair(c.tag, l.sharing.queue, mayRead|mayWrite); err != nil {
		return fmt.Errorf("queue pair: %w", err)
	}
	l.table.by[c.tag&tagIndex].Store(c) // completions may arrive from now on
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
		pair: c.pair.number(), packet: binary.LittleEndian.Uint32(b[:]) & numberMax, gid: p.GID.As16(), device: p.Device, lends: l.cfg.Lends,
	}
	return nil
}

// prepareReceives makes and posts receives for this connection alone. It is called if the link has
// no shared ones.
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

// Offer returns the argument of the other side's Connect.
func (e *Endpoint) Offer() []byte { return e.c.local.encode() }

// Connect connects the queue pair. raw is the other side's Offer.
func (e *Endpoint) Connect(raw []byte) error {
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

// Close releases an Endpoint that no link has joined; a closed link has released it
// already. If receives are shared, the engine ends the Endpoint in its next Poll:
// messages for it are in slots that other connections need.
func (e *Endpoint) Close() error {
	if !e.c.l.returnConn(e.c) {
		e.c.once.Do(e.c.release)
	}
	return nil
}

// alloc returns the tag of a free entry.
func (t *connTable) alloc() (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.tags) == 0 {
		return 0, fmt.Errorf("%w: %d exist, as many as it has room for", errConns, len(t.by))
	}
	i := t.tags[0]
	t.tags = t.tags[1:]
	t.gens[i]++
	return uint32(t.gens[i])<<tagBits | uint32(i), nil
}

// free frees the entry of a connection.
func (t *connTable) free(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := c.tag & tagIndex
	t.by[i].Store(nil)
	if t.unjoined[c.local.pair] == c { // the number may belong to another connection by now
		delete(t.unjoined, c.local.pair)
	}
	t.tags = append(t.tags, int32(i)) // the end of the queue, so that an index is reused as late as possible
}

// conn returns the connection of a tag, or nil if it has ended.
func (t *connTable) conn(tag uint32) *conn {
	c := t.by[tag&tagIndex].Load()
	if c == nil || c.tag != tag {
		return nil
	}
	return c
}

// close ensures that no Endpoint is returned any more.
func (t *connTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
