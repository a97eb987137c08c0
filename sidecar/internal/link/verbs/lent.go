package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Memory that an application has registered itself (link.Lender). The device checks a
// key against the protection domain of the queue pair that uses it, and a domain is of
// one context: so each such application has a context that was opened for it alone,
// with a domain of its own, and remote reads from and into its memory go by queue pairs
// there (lane.go). The application holds the context's descriptor and may do with all
// that is in it what it likes. So this side believes nothing that comes of it: what was
// destroyed, or has other keys than was said, makes operations fail.

// lending is what the link knows of that memory, and of the lanes to it.
type lending struct {
	byRegion   map[link.Region]*domain
	domains    map[uint32]*domain // by number, 0: this sidecar's own
	bells      map[int]*domain    // by the descriptor that tells of its completions
	lastDomain uint32
	lanes      int
	laneTag    uint32
	unanswered int // lanes that were asked for
	steps      laneSteps
	pasts      map[link.Peer]*past
	clock      func() time.Time
	warned     bool // of a lane that has failed
	comps      [pollBatch]completion
}

func newLending() lending {
	return lending{
		byRegion: map[link.Region]*domain{}, domains: map[uint32]*domain{}, bells: map[int]*domain{},
		pasts: map[link.Peer]*past{}, clock: time.Now,
	}
}

// opener is a nic whose device can be opened again.
type opener interface {
	// beside makes a completion queue for queue pairs of the same protection domain.
	beside(depth int) (nic, error)
	// again opens the device once more, for one application.
	again(depth int) (nic, link.Grant, error)
}

// client is a context for one application.
type client struct {
	nic   nic
	grant link.Grant
}

func (c *client) Grant() link.Grant { return c.grant }

// Close closes it. Registrations that are left keep the domain busy, and end with the
// application's own descriptor; what libibverbs says of that is of no use.
func (c *client) Close() error {
	_ = c.nic.close()
	return nil
}

// domain is a protection domain with the queue pairs that lanes have there.
type domain struct {
	number  uint32 // 0: this sidecar's own
	nic     nic
	context link.Context // nil: this sidecar's own
	lent    map[uint32]link.Lent
	lanes   map[uint32]*lane // by tag
	most    int              // lanes
	under   int              // requests posted and not done
	stash   []completion     // taken out, to be handled by the next Poll
}

// errNoOpener is of devices that are made of memory.
var errNoOpener = errors.New("the device cannot be opened for an application")

// OpenContext opens the device for one application. It may be called on any goroutine.
func (l *Link) OpenContext() (link.Context, error) {
	if gone := l.places.dead.Load(); gone != nil {
		return nil, *gone
	}
	o, ok := l.nic.(opener)
	if !ok {
		return nil, errNoOpener
	}
	n, g, err := o.again(domainLanes * piecesMax)
	if err != nil {
		return nil, fmt.Errorf("verbs: opening %s for an application: %w", l.port.Device, err)
	}
	return &client{nic: n, grant: g}, nil
}

// Admit makes r the region of what an application registers on x, of OpenContext.
func (l *Link) Admit(r link.Region, x link.Context) error {
	c, ok := x.(*client)
	if !ok {
		return errors.New("verbs: a context that is not of this link")
	}
	if l.gone != nil {
		return l.gone
	}
	l.lending.lastDomain++
	d := &domain{number: l.lending.lastDomain, most: domainLanes, nic: c.nic, context: x, lent: map[uint32]link.Lent{}}
	if err := l.addDomain(d); err != nil {
		return err
	}
	l.lending.byRegion[r] = d
	return nil
}

func (l *Link) addDomain(d *domain) error {
	d.lanes = map[uint32]*lane{}
	for _, fd := range d.nic.events() {
		if err := l.watch.add(fd, ownedByNone); err != nil {
			return err
		}
		l.lending.bells[fd] = d
	}
	l.lending.domains[d.number] = d
	return nil
}

// Lend adds memory to the region of an application.
func (l *Link) Lend(r link.Region, number uint32, m link.Lent) error {
	d := l.lending.byRegion[r]
	if d == nil {
		return errors.New("verbs: the device is gone, or the region lends nothing")
	}
	d.lent[number] = m
	return nil
}

// Reclaim takes it out again.
func (l *Link) Reclaim(r link.Region, number uint32) {
	if d := l.lending.byRegion[r]; d != nil {
		delete(d.lent, number)
	}
}

// find is where a range of lent memory lies, as its application says.
func (d *domain) find(ref link.Ref) (m link.Lent, addr uint64, ok bool) {
	m, ok = d.lent[uint32(ref.Off>>link.LentShift)]
	off := ref.Off & (1<<link.LentShift - 1)
	return m, m.Addr + off, ok && ref.Len <= m.Len && off <= m.Len-ref.Len
}

// Keys of lent memory have the number of its domain, from here on.
const domainShift = 40

// domainOf is the domain of a peer's key; false: it is no key of a device.
func domainOf(k link.Key) (uint32, bool) {
	top := k.Key >> 32
	return uint32(top >> (domainShift - 32)), top&(1<<(domainShift-32)-1) == keyBit>>32
}

// registerLent is the key of memory that its application has registered.
func (d *domain) registerLent(ref link.Ref) (link.Key, error) {
	m, addr, ok := d.find(ref)
	if !ok {
		return link.Key{}, fmt.Errorf("verbs: %d bytes that are not lent", ref.Len)
	}
	return link.Key{Key: uint64(d.number)<<domainShift | keyBit | uint64(m.Rkey), Addr: addr}, nil
}

// Withdraw ends what one peer does with lent memory, when the operation has ended early
// (link.Abilities): the registration is its application's, but the queue pairs are not.
// Those of other peers have their own operations, and stay.
func (l *Link) Withdraw(peer link.Peer, k link.Key) {
	number, ok := domainOf(k)
	if !ok || number == 0 {
		l.Deregister(k)
		return
	}
	if d := l.lending.domains[number]; d != nil {
		d.endAnswered(func(ln *lane) bool { return ln.c.peer == peer })
	}
}

// endAnswered ends those lanes by which peers read from a domain.
func (d *domain) endAnswered(which func(*lane) bool) {
	for _, ln := range d.lanes {
		if !ln.asks && which(ln) {
			ln.end(errForgotten, true)
			ln.destroy()
		}
	}
}

// dropLender ends a domain whose application has left.
func (l *Link) dropLender(r link.Region) {
	d := l.lending.byRegion[r]
	if d == nil {
		return
	}
	delete(l.lending.byRegion, r)
	l.dropDomain(d)
}

func (l *Link) dropDomain(d *domain) {
	for _, ln := range d.lanes {
		ln.end(errForgotten, true)
		ln.destroy()
	}
	delete(l.lending.domains, d.number)
	for _, fd := range d.nic.events() {
		delete(l.lending.bells, fd)
		l.watch.remove(fd) // its end does that as well
	}
	if d.context != nil {
		_ = d.context.Close() // of nobody's use any more
	} else {
		_ = d.nic.close()
	}
}

// dropDomains ends all of them.
func (l *Link) dropDomains() {
	clear(l.lending.byRegion)
	for _, d := range l.lending.domains {
		l.dropDomain(d)
	}
}
