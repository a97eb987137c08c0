package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Lent memory is memory that an application has registered itself (link.Lender). The
// device checks a key against the protection domain of the queue pair that uses it, and a
// domain belongs to one context. So each such application has a context that was opened
// for it alone, with a domain of its own, and remote reads from and into its memory use
// queue pairs of that domain (lentqp.go). The application holds the context's descriptor
// and may change everything in it. So this side trusts nothing in it: objects that the
// application has destroyed, and wrong keys, make operations fail.

// lending is the state of lent memory, and of the lentQPs to it.
type lending struct {
	byRegion   map[link.Region]*domain
	domains    map[uint32]*domain // domains by number; 0 is this sidecar's own
	byEvent    map[int]*domain    // domains by the descriptor that reports their completions
	lastDomain uint32
	lentQPs    int
	lentTag    uint32
	unanswered int // lentQPs that the peer was asked for
	steps      lentSteps
	histories  map[link.Peer]*history
	clock      func() time.Time
	warned     bool // a failed lentQP was logged as a warning
	comps      [pollBatch]completion
}

func newLending() lending {
	return lending{
		byRegion: map[link.Region]*domain{}, domains: map[uint32]*domain{}, byEvent: map[int]*domain{},
		histories: map[link.Peer]*history{}, clock: time.Now,
	}
}

// opener is a nic whose device can be opened again.
type opener interface {
	// newQueue makes a completion queue for queue pairs of the same protection domain.
	newQueue(depth int) (nic, error)
	// reopen opens the device once more, for one application.
	reopen(depth int) (nic, link.Grant, error)
}

// client is a context for one application.
type client struct {
	nic   nic
	grant link.Grant
}

func (c *client) Grant() link.Grant { return c.grant }

// Close closes the context. The application's remaining registrations keep the domain
// busy, and end with the application's own descriptor; libibverbs's errors about that say
// nothing.
func (c *client) Close() error {
	_ = c.nic.close()
	return nil
}

// domain is a protection domain, with the lentQPs in it.
type domain struct {
	number   uint32 // number of the domain; 0: this sidecar's own
	nic      nic
	context  link.Context // context of the application; nil: this sidecar's own
	lent     map[uint32]link.Lent
	lentQPs  map[uint32]*lentQP // by tag
	most     int                // bound of lentQPs
	inFlight int                // requests posted and not complete
	stash    []completion       // polled, to be handled by the next Poll
}

// errNoOpener means that the device is a test's, made of memory.
var errNoOpener = errors.New("the device cannot be opened for an application")

// OpenContext opens the device for one application. It may be called on any goroutine.
func (l *Link) OpenContext() (link.Context, error) {
	if gone := l.table.dead.Load(); gone != nil {
		return nil, *gone
	}
	o, ok := l.nic.(opener)
	if !ok {
		return nil, errNoOpener
	}
	n, g, err := o.reopen(lentQPsPerDomain * piecesMax)
	if err != nil {
		return nil, fmt.Errorf("verbs: opening %s for an application: %w", l.port.Device, err)
	}
	return &client{nic: n, grant: g}, nil
}

// Admit makes r the region of the memory that an application registers on x, the result
// of OpenContext.
func (l *Link) Admit(r link.Region, x link.Context) error {
	c, ok := x.(*client)
	if !ok {
		return errors.New("verbs: the context is not from OpenContext of this link")
	}
	if l.lost != nil {
		return l.lost
	}
	l.lending.lastDomain++
	d := &domain{number: l.lending.lastDomain, most: lentQPsPerDomain, nic: c.nic, context: x, lent: map[uint32]link.Lent{}}
	if err := l.addDomain(d); err != nil {
		return err
	}
	l.lending.byRegion[r] = d
	return nil
}

func (l *Link) addDomain(d *domain) error {
	d.lentQPs = map[uint32]*lentQP{}
	for _, fd := range d.nic.events() {
		if err := l.watch.add(fd, noOwner); err != nil {
			return err
		}
		l.lending.byEvent[fd] = d
	}
	l.lending.domains[d.number] = d
	return nil
}

// Lend adds memory to the region of an application.
func (l *Link) Lend(r link.Region, number uint32, m link.Lent) error {
	d := l.lending.byRegion[r]
	if d == nil {
		return errors.New("verbs: the region has no context (Admit), or the device is lost")
	}
	d.lent[number] = m
	return nil
}

// Reclaim removes it again.
func (l *Link) Reclaim(r link.Region, number uint32) {
	if d := l.lending.byRegion[r]; d != nil {
		delete(d.lent, number)
	}
}

// find returns the location of a range of lent memory, as its application declared it.
func (d *domain) find(ref link.Ref) (m link.Lent, addr uint64, ok bool) {
	m, ok = d.lent[uint32(ref.Off>>link.LentShift)]
	off := ref.Off & (1<<link.LentShift - 1)
	return m, m.Addr + off, ok && ref.Len <= m.Len && off <= m.Len-ref.Len
}

// domainShift is the position of the domain's number in a key of lent memory.
const domainShift = 40

// domainOf returns the domain of a peer's key; false: it is not a key of a device.
func domainOf(k link.Key) (uint32, bool) {
	top := k.Key >> 32
	return uint32(top >> (domainShift - 32)), top&(1<<(domainShift-32)-1) == keyBit>>32
}

// registerLent returns the key of memory that its application has registered.
func (d *domain) registerLent(ref link.Ref) (link.Key, error) {
	m, addr, ok := d.find(ref)
	if !ok {
		return link.Key{}, fmt.Errorf("verbs: %d bytes that the application has not lent", ref.Len)
	}
	return link.Key{Key: uint64(d.number)<<domainShift | keyBit | uint64(m.Rkey), Addr: addr}, nil
}

// Withdraw ends the operations of one peer on lent memory, when the core's operation has
// ended early (link.Abilities): the registration belongs to the application, but the
// queue pairs do not. Those of other peers have their own operations, and stay.
func (l *Link) Withdraw(peer link.Peer, k link.Key) {
	number, ok := domainOf(k)
	if !ok || number == 0 {
		l.Deregister(k)
		return
	}
	if d := l.lending.domains[number]; d != nil {
		d.endAnswered(func(q *lentQP) bool { return q.c.peer == peer })
	}
}

// endAnswered ends the lentQPs by which peers read from a domain and for which which is
// true.
func (d *domain) endAnswered(which func(*lentQP) bool) {
	for _, q := range d.lentQPs {
		if !q.asks && which(q) {
			q.end(errForgotten, true)
			q.destroy()
		}
	}
}

// dropLender ends the domain of an application that has left.
func (l *Link) dropLender(r link.Region) {
	d := l.lending.byRegion[r]
	if d == nil {
		return
	}
	delete(l.lending.byRegion, r)
	l.dropDomain(d)
}

func (l *Link) dropDomain(d *domain) {
	for _, q := range d.lentQPs {
		q.end(errForgotten, true)
		q.destroy()
	}
	delete(l.lending.domains, d.number)
	for _, fd := range d.nic.events() {
		delete(l.lending.byEvent, fd)
		l.watch.remove(fd) // closing the descriptor would do that as well
	}
	if d.context != nil {
		_ = d.context.Close() // it is not used any more
	} else {
		_ = d.nic.close()
	}
}

// dropDomains ends all domains.
func (l *Link) dropDomains() {
	clear(l.lending.byRegion)
	for _, d := range l.lending.domains {
		l.dropDomain(d)
	}
}
