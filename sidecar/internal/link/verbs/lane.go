package verbs

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A lane is a queue pair beside the one of a connection, between two protection domains
// of which one at least is an application's: the side that asks for it reads by it, and
// the other one only answers. Whoever needs a lane that is not there asks the peer for it
// by a message of the connection (introduce.go), and has its operation refused meanwhile:
// the core lets that message be copied.
//
//	asker's domain       answerer's domain
//	own          ◄═════  application's       the source is lent
//	application's ◄════  own                 the target is lent
//	application's ◄════  application's       both are
//
// A lane takes no receives and sends nothing. It ends with its connection, with one of
// its domains, or with a request that fails; nothing else ends with it.
type lane struct {
	c         *conn
	d         *domain
	number    uint32 // the asker's, in what the two say of it
	theirs    uint32 // domain of the peer, of the one that asks
	tag       uint32
	asks      bool
	ready     bool
	over      bool  // nothing more begins on it
	cause     error // of that
	destroyed bool
	pair      pair // nil: it is to be made (makelane.go)
	local     offer
	remote    *offer // nil: the peer has not answered
	ops       operations
	behind    bool      // waits for the next turn, in which its link registers more
	served    bool      // it has carried an operation to its end
	moved     bool      // something of ops has gone on since probeLanes looked
	since     time.Time // when it had at the last, or when it was asked for
	looked    time.Time // when it was asked whether it works
}

// laneEnds are the domains of a lane, the asker's first.
type laneEnds struct{ mine, theirs uint32 }

const (
	lanesMax    = 256 // of a link
	domainLanes = 64  // of an application's domain: its queue of completions is as long as they need
	// laneLook is after which silence a queue pair is asked whether it is still there.
	laneLook = time.Second
	// laneLooks is how many are asked in a turn: each is a call of the kernel's.
	laneLooks = 4
	// laneSilence is after which silence it is given up: a device that is not answered says
	// so within seconds, and what it says is lost where the application has filled the
	// queue of completions.
	laneSilence = time.Minute
)

var errUnanswered = fmt.Errorf("%w: the peer has not answered for %v", link.ErrBroken, laneSilence)

var errSilent = fmt.Errorf("%w: no request has ended for %v", link.ErrBroken, laneSilence)

var (
	errLanes   = fmt.Errorf("%d queue pairs for memory that applications lend exist, or %d of one of them, or as many with this peer as are left", lanesMax, domainLanes)
	errNotYet  = errors.New("the queue pair for memory that an application lends is being made")
	errNoLanes = errors.New("the peer's sidecar lends no memory")
	errLent    = errors.New("memory that an application lends is read from and into, not written")
	errFails   = fmt.Errorf("%d queue pairs for the memory of these applications have failed: another one is tried every %v", failsMax, failsPause)
)

// side is this sidecar's own domain, with a queue of completions for lanes.
func (l *Link) side() (*domain, error) {
	if d := l.lending.domains[0]; d != nil {
		return d, nil
	}
	o, ok := l.nic.(opener)
	if !ok {
		return nil, errNoOpener
	}
	n, err := o.beside(lanesMax * piecesMax)
	if err != nil {
		return nil, err
	}
	d := &domain{nic: n, most: lanesMax}
	if err := l.addDomain(d); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return d, nil
}

// greedy reports that a connection has as many lanes as are left for all others. A peer may
// ask for, or have this side ask for, as many as it likes: it never has the last one, and
// those that come later find some.
func (c *conn) greedy() bool {
	l := c.l
	return l.cfg.Peers > 2 && c.lanes >= lanesMax-l.lending.lanes
}

// room reports whether there is room for another lane in d.
func (c *conn) laneRoom(d *domain) error {
	if c.l.lending.lanes >= lanesMax || len(d.lanes) >= d.most || c.greedy() {
		return errLanes
	}
	return nil
}

// create makes a queue pair. An application has authority over the one at the other end,
// and may send by it what it likes: so that one may do no more than it is for, also to who
// knows, or guesses, a key of this sidecar's own domain.
func (ln *lane) create() error {
	c, l := ln.c, ln.c.l
	if err := c.laneRoom(ln.d); err != nil {
		return err
	}
	may := mayRead
	if ln.asks {
		may = 0
	}
	l.lending.laneTag++
	ln.tag = l.lending.laneTag
	var err error
	if ln.pair, err = ln.d.nic.newPair(ln.tag, nil, may); err != nil {
		ln.pair = nil
		return fmt.Errorf("queue pair for memory that an application lends: %w", err)
	}
	ln.local = c.local
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	ln.local.pair, ln.local.packet = ln.pair.number(), binary.LittleEndian.Uint32(b[:])&numberMax
	ln.d.lanes[ln.tag] = ln
	l.lending.lanes++
	c.lanes++
	return nil
}

// laneTo finds the lane from domain d to one of the peer's, or asks for it.
func (c *conn) laneTo(d *domain, theirs uint32) (*lane, error) {
	ends := laneEnds{d.number, theirs}
	switch {
	case !c.remote.lanes:
		return nil, errNoLanes
	case c.tired(ends):
		return nil, errFails
	}
	for _, ln := range c.asked {
		if ln.d == d && ln.theirs == theirs {
			if !ln.ready {
				return nil, errNotYet
			}
			return ln, nil
		}
	}
	if err := c.laneRoom(d); err != nil {
		return nil, err
	}
	c.lastLane++
	ln := &lane{c: c, d: d, number: c.lastLane, asks: true, theirs: theirs}
	if err := c.want(ln); err != nil {
		return nil, err
	}
	c.asked[ln.number] = ln
	return nil, errNotYet
}

// startLane starts an operation whose memory is lent at one end or both.
func (c *conn) startLane(op operation, lender *domain, theirs uint32) (err error) {
	l := c.l
	if op.write {
		return errLent
	}
	d := lender
	if d == nil {
		if d, err = l.side(); err != nil {
			return err
		}
	}
	ln, err := c.laneTo(d, theirs)
	if err != nil {
		return err
	}
	if lender == nil {
		if err := c.reach(&op); err != nil {
			return err
		}
	} else {
		m, addr, ok := d.find(op.local)
		if !ok {
			return fmt.Errorf("verbs: %d bytes that are not lent", op.length)
		}
		op.addr, op.lkey = addr, m.Lkey
	}
	ln.moved = true
	ln.ops.add(op)
	l.stats.LentReads++
	ln.pump()
	return nil
}

// pump posts pieces of the operations whose turn it is. One that cannot be posted ends
// with all that the lane has.
func (ln *lane) pump() {
	if ln.over {
		return
	}
	var batch [batchMax]request
	n := 0
	for n < batchMax {
		k := ln.next()
		if k < 0 {
			break
		}
		off, length, _ := ln.ops.piece(k)
		op := &ln.ops.table[k]
		batch[n] = request{
			id: idOf(ln.tag, uint32(k)), op: opRead, flags: flagSignal, addr: op.addr + off, lkey: op.lkey, length: uint32(length),
			remote: op.key.Addr + off, rkey: uint32(op.key.Key),
		}
		n++
		ln.ops.sent(k, length, 1)
		ln.d.under++
	}
	if n == 0 {
		return
	}
	ln.c.l.stats.Calls++
	if err := ln.pair.post(batch[:n]); err != nil {
		ln.fail(fmt.Errorf("%w: posting: %w", link.ErrBroken, err))
	}
}

// next is the operation whose next piece can be posted, or -1. The next part of its memory
// is made known once the part before is here, so that no request has a use of its own.
func (ln *lane) next() int32 {
	for {
		k := ln.ops.turn()
		if k < 0 || !ln.ops.table[k].reached() {
			return k
		}
		op, l := &ln.ops.table[k], ln.c.l
		if op.left > 0 {
			return -1
		}
		err := l.nextPart(op)
		switch {
		case err == nil:
			return k
		case errors.Is(err, link.ErrLater):
			if !ln.behind {
				ln.behind = true
				l.todo.behind = append(l.todo.behind, ln)
			}
			return -1
		}
		ln.ops.giveUp(k, err)
		ln.c.abort(&ln.ops, k)
	}
}

// completed handles one completion.
func (ln *lane) completed(x *completion, sink link.Sink) {
	k := int32(uint32(x.id))
	if int(k) >= len(ln.ops.table) || !ln.ops.table[k].used {
		return // an application's own request, perhaps
	}
	if x.status != statusOK {
		ln.ops.table[k].refused = ln.ops.table[k].refused || x.status == statusAccess
		ln.fail(fmt.Errorf("%w: %s, queue pair %#x for memory that an application lends: %s", link.ErrBroken, ln.c.l.port.Device, ln.local.pair, statusText(x.raw)))
		return
	}
	if ln.ops.table[k].left == 0 { // the application has sent something by this pair, or to this queue
		ln.fail(fmt.Errorf("%w: %s, queue pair %#x for memory that an application lends: the end of a request that was not made", link.ErrBroken, ln.c.l.port.Device, ln.local.pair))
		return
	}
	ln.moved = true
	ln.d.under--
	if !ln.ops.complete(k) {
		ln.pump()
		return
	}
	op := ln.ops.table[k]
	ln.ops.end(k)
	ln.served = true
	l := ln.c.l
	l.stats.LentBytes += op.length
	l.stats.BytesIn += op.length
	ln.c.settleOperation(&op)
	ln.pump()
	sink.Done(ln.c.peer, op.token, nil)
}

func (ln *lane) ends() laneEnds { return laneEnds{ln.d.number, ln.theirs} }

// fail ends a lane by a mistake of one of its sides.
func (ln *lane) fail(cause error) {
	if ln.over {
		return
	}
	l := ln.c.l
	if l.stats.LentFaults++; ln.asks {
		ln.c.failed(ln.ends())
	}
	level := slog.LevelDebug
	if !l.lending.warned {
		l.lending.warned, level = true, slog.LevelWarn
	}
	l.cfg.Log.Log(context.Background(), level, "a queue pair for memory that an application lends has failed: its messages are copied until there is another", "peer", ln.c.peer, "cause", cause)
	ln.end(cause, true)
}

// end ends a lane; the peer is told if tell says so. Its queue pair is destroyed, and its
// operations end, in a later turn.
func (ln *lane) end(cause error, tell bool) {
	if ln.over {
		return
	}
	ln.over, ln.cause = true, cause
	c, l := ln.c, ln.c.l
	if ln.asks {
		delete(c.asked, ln.number)
		if !ln.ready && ln.pair != nil {
			l.lending.unanswered--
		}
	} else {
		delete(c.answered, ln.number)
	}
	if tell && !(ln.asks && ln.pair == nil) { // else it was not asked for yet
		c.say(laneWord{kind: laneEnd, number: ln.number, asker: ln.asks})
	}
	if ln.pair != nil {
		l.lending.steps.dying = append(l.lending.steps.dying, ln)
	}
}

// pollLanes takes completions of lanes, a bounded number.
func (l *Link) pollLanes(sink link.Sink) (work int) {
	for _, d := range l.lending.domains {
		if d.under == 0 {
			continue
		}
		for _, x := range d.stash {
			work += d.completed(&x, sink)
		}
		d.stash = d.stash[:0]
		n, err := d.nic.poll(l.lending.comps[:])
		if err != nil {
			d.failAll(err)
			continue
		}
		for i := range l.lending.comps[:n] {
			work += d.completed(&l.lending.comps[i], sink)
		}
	}
	return work
}

func (d *domain) completed(x *completion, sink link.Sink) int {
	if ln := d.lanes[uint32(x.id>>32)]; ln != nil {
		ln.completed(x, sink)
	}
	return 1
}

// failAll ends all lanes of a domain whose queue of completions does not work.
func (d *domain) failAll(cause error) {
	for _, ln := range d.lanes {
		ln.fail(fmt.Errorf("%w: %w", link.ErrBroken, cause))
	}
}

// armLanes asks for events at the next completions of lanes. It reports whether there
// are some already.
func (l *Link) armLanes() (work bool) {
	for _, d := range l.lending.domains {
		if d.under == 0 {
			continue
		}
		d.nic.acknowledge()
		if err := d.nic.arm(); err != nil {
			d.failAll(err)
			work = true
			continue
		}
		// What came before is not announced.
		if n, err := d.nic.poll(l.lending.comps[:]); err == nil {
			d.stash = append(d.stash, l.lending.comps[:n]...)
		}
		work = work || len(d.stash) > 0
	}
	return work
}

// prober is a pair that can be asked whether it still works.
type prober interface{ works() error }

// probeLanes looks for queue pairs that end nothing any more, as when their application
// has destroyed them, and for those that the peer does not answer for: each takes a place.
func (l *Link) probeLanes() {
	now, looks := l.lending.clock(), laneLooks
	for _, d := range l.lending.domains {
		if d.under == 0 && l.lending.unanswered == 0 {
			continue
		}
		for _, ln := range d.lanes {
			if ln.over {
				continue
			}
			if ln.asks && !ln.ready && now.Sub(ln.since) >= laneSilence {
				ln.c.failed(ln.ends())
				ln.end(errUnanswered, true)
				continue
			}
			if ln.moved {
				ln.moved, ln.since, ln.looked = false, now, now
			}
			if ln.ops.under == 0 || now.Sub(ln.looked) < laneLook {
				continue
			}
			if now.Sub(ln.since) >= laneSilence {
				ln.fail(errSilent)
			} else if p, ok := ln.pair.(prober); ok && looks > 0 {
				looks--
				ln.looked = now
				if err := p.works(); err != nil {
					ln.fail(fmt.Errorf("%w: %w", link.ErrBroken, err))
				}
			}
		}
	}
}
