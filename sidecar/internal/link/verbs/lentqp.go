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

// lentQP is a queue pair for memory that an application has registered, in addition to
// that of a connection. It is between two protection domains of which at least one is an
// application's. The asker reads through it, and the answerer only answers. If an
// operation needs a lentQP that does not exist, the link asks the peer for one by a
// message of the connection (introduce.go), and refuses the operation meanwhile: the core
// then copies the message.
//
//	asker's domain       answerer's domain
//	own          ◄═════  application's       the source is lent
//	application's ◄════  own                 the target is lent
//	application's ◄════  application's       both are
//
// A lentQP takes no receives and sends nothing. It ends with its connection, with one of
// its domains, or with a request that fails; nothing else ends with it.
type lentQP struct {
	c          *conn
	d          *domain
	number     uint32 // the number that the asker gave this queue pair, in messages about it
	theirs     uint32 // domain of the peer, if this side asks
	tag        uint32
	asks       bool
	ready      bool
	over       bool  // no operation begins on this queue pair any more
	cause      error // reason for over
	destroyed  bool
	pair       pair // nil: not made yet (makelent.go)
	local      offer
	remote     *offer // nil: the peer has not answered
	ops        operations
	behind     bool      // the next part is registered in the next turn
	served     bool      // an operation has completed on this queue pair
	progressed bool      // a request has completed since probeLent last checked
	since      time.Time // time of the last completed request, or of the request for this queue pair
	probed     time.Time // time of the last probe
}

// domainPair is the two domains of a lentQP, the asker's first.
type domainPair struct{ mine, theirs uint32 }

const (
	lentQPsMax       = 256 // most lentQPs of a link
	lentQPsPerDomain = 64  // most lentQPs of an application's domain: the completion queue has room for their requests
	// probeAfter is the silence after which a queue pair is probed.
	probeAfter = time.Second
	// probesPerTurn is how many are probed in a turn: each is a system call.
	probesPerTurn = 4
	// silenceMax is the silence after which a lentQP is ended. A device whose peer does
	// not answer reports that within seconds, but the report is lost if the application
	// has filled the completion queue.
	silenceMax = time.Minute
)

var errUnanswered = fmt.Errorf("%w: the peer has not answered for %v", link.ErrBroken, silenceMax)

var errSilent = fmt.Errorf("%w: no request has ended for %v", link.ErrBroken, silenceMax)

var (
	errLentQPs   = fmt.Errorf("%d queue pairs for memory that applications lend exist, or %d of one application, or this peer has its share of them", lentQPsMax, lentQPsPerDomain)
	errNotYet    = errors.New("the queue pair for memory that an application lends is being made")
	errNoLending = errors.New("the peer's sidecar lends no memory")
	errLent      = errors.New("memory that an application lends can be read and not written")
	errFails     = fmt.Errorf("%d queue pairs for the memory of these applications have failed: the next one is tried within %v", failsMax, failsPause)
)

// ownDomain returns this sidecar's own domain, with a completion queue for lentQPs.
func (l *Link) ownDomain() (*domain, error) {
	if d := l.lending.domains[0]; d != nil {
		return d, nil
	}
	o, ok := l.nic.(opener)
	if !ok {
		return nil, errNoOpener
	}
	n, err := o.newQueue(lentQPsMax * piecesMax)
	if err != nil {
		return nil, err
	}
	d := &domain{nic: n, most: lentQPsMax}
	if err := l.addDomain(d); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return d, nil
}

// greedy reports whether a connection has as many lentQPs as are left for all others. A
// peer may ask for, or make this side ask for, any number: it never gets the last one, so
// that later peers find some.
func (c *conn) greedy() bool {
	l := c.l
	return l.cfg.Peers > 2 && c.lentQPs >= lentQPsMax-l.lending.lentQPs
}

// lentRoom returns an error if there is no room for another lentQP in d.
func (c *conn) lentRoom(d *domain) error {
	if c.l.lending.lentQPs >= lentQPsMax || len(d.lentQPs) >= d.most || c.greedy() {
		return errLentQPs
	}
	return nil
}

// create makes a queue pair. An application has authority over the queue pair at the
// other side, and may send any request through it: so this one permits only the reads
// that it is for, even if the application knows or guesses a key of this sidecar's own
// domain.
func (q *lentQP) create() error {
	c, l := q.c, q.c.l
	if err := c.lentRoom(q.d); err != nil {
		return err
	}
	may := mayRead
	if q.asks {
		may = 0
	}
	l.lending.lentTag++
	q.tag = l.lending.lentTag
	var err error
	if q.pair, err = q.d.nic.newPair(q.tag, nil, may); err != nil {
		q.pair = nil
		return fmt.Errorf("queue pair for memory that an application lends: %w", err)
	}
	q.local = c.local
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	q.local.pair, q.local.packet = q.pair.number(), binary.LittleEndian.Uint32(b[:])&numberMax
	q.d.lentQPs[q.tag] = q
	l.lending.lentQPs++
	c.lentQPs++
	return nil
}

// lentTo returns the lentQP from domain d to one of the peer's, or asks for it.
func (c *conn) lentTo(d *domain, theirs uint32) (*lentQP, error) {
	ends := domainPair{d.number, theirs}
	switch {
	case !c.remote.lends:
		return nil, errNoLending
	case c.failing(ends):
		return nil, errFails
	}
	for _, q := range c.asked {
		if q.d == d && q.theirs == theirs {
			if !q.ready {
				return nil, errNotYet
			}
			return q, nil
		}
	}
	if err := c.lentRoom(d); err != nil {
		return nil, err
	}
	c.lastLent++
	q := &lentQP{c: c, d: d, number: c.lastLent, asks: true, theirs: theirs}
	if err := c.want(q); err != nil {
		return nil, err
	}
	c.asked[q.number] = q
	return nil, errNotYet
}

// startLent starts an operation whose memory is lent on one side or both.
func (c *conn) startLent(op operation, lender *domain, theirs uint32) (err error) {
	l := c.l
	if op.write {
		return errLent
	}
	d := lender
	if d == nil {
		if d, err = l.ownDomain(); err != nil {
			return err
		}
	}
	q, err := c.lentTo(d, theirs)
	if err != nil {
		return err
	}
	if lender == nil {
		if err := c.prepareLocal(&op); err != nil {
			return err
		}
	} else {
		m, addr, ok := d.find(op.local)
		if !ok {
			return fmt.Errorf("verbs: %d bytes that the application has not lent", op.length)
		}
		op.addr, op.lkey = addr, m.Lkey
	}
	q.progressed = true
	q.ops.add(op)
	l.stats.LentReads++
	q.pump()
	return nil
}

// pump posts pieces of the operations in turn. If the post fails, the lentQP fails with
// all of its operations.
func (q *lentQP) pump() {
	if q.over {
		return
	}
	var batch [batchMax]request
	n := 0
	for n < batchMax {
		k := q.next()
		if k < 0 {
			break
		}
		off, length, _ := q.ops.piece(k)
		op := &q.ops.table[k]
		batch[n] = request{
			id: idOf(q.tag, uint32(k)), op: opRead, flags: flagSignal, addr: op.addr + off, lkey: op.lkey, length: uint32(length),
			remote: op.key.Addr + off, rkey: uint32(op.key.Key),
		}
		n++
		q.ops.sent(k, length, 1)
		q.d.inFlight++
	}
	if n == 0 {
		return
	}
	q.c.l.stats.Calls++
	if err := q.pair.post(batch[:n]); err != nil {
		q.fail(fmt.Errorf("%w: posting: %w", link.ErrBroken, err))
	}
}

// next returns the operation whose next piece can be posted, or -1. The next part of its
// memory is registered once the part before has arrived, so that no request needs a use
// of its own.
func (q *lentQP) next() int32 {
	for {
		k := q.ops.turn()
		if k < 0 || !q.ops.table[k].needsPart() {
			return k
		}
		op, l := &q.ops.table[k], q.c.l
		if op.pending > 0 {
			return -1
		}
		err := l.nextPart(op)
		switch {
		case err == nil:
			return k
		case errors.Is(err, link.ErrLater):
			if !q.behind {
				q.behind = true
				l.todo.lentLate = append(l.todo.lentLate, q)
			}
			return -1
		}
		q.ops.stop(k, err)
		q.c.abort(&q.ops, k)
	}
}

// completed handles one completion.
func (q *lentQP) completed(x *completion, sink link.Sink) {
	k := int32(uint32(x.id))
	if int(k) >= len(q.ops.table) || !q.ops.table[k].used {
		return // possibly an application's own request
	}
	if x.status != statusOK {
		q.ops.table[k].refused = q.ops.table[k].refused || x.status == statusAccess
		q.fail(fmt.Errorf("%w: %s, queue pair %#x for memory that an application lends: %s", link.ErrBroken, q.c.l.port.Device, q.local.pair, statusText(x.raw)))
		return
	}
	if q.ops.table[k].pending == 0 { // the application has used this pair, or this queue
		q.fail(fmt.Errorf("%w: %s, queue pair %#x for memory that an application lends: a completion without a request", link.ErrBroken, q.c.l.port.Device, q.local.pair))
		return
	}
	q.progressed = true
	q.d.inFlight--
	if !q.ops.complete(k) {
		q.pump()
		return
	}
	op := q.ops.table[k]
	q.ops.remove(k)
	q.served = true
	l := q.c.l
	l.stats.LentBytes += op.length
	l.stats.BytesIn += op.length
	q.c.settleOperation(&op)
	q.pump()
	sink.Done(q.c.peer, op.token, nil)
}

func (q *lentQP) domains() domainPair { return domainPair{q.d.number, q.theirs} }

// fail ends a lentQP because of a fault of one of its sides.
func (q *lentQP) fail(cause error) {
	if q.over {
		return
	}
	l := q.c.l
	if l.stats.LentFaults++; q.asks {
		q.c.noteFailure(q.domains())
	}
	level := slog.LevelDebug
	if !l.lending.warned {
		l.lending.warned, level = true, slog.LevelWarn
	}
	l.cfg.Log.Log(context.Background(), level, "a queue pair for memory that an application lends has failed: its messages are copied until there is another", "peer", q.c.peer, "cause", cause)
	q.end(cause, true)
}

// end ends a lentQP, and notifies the peer if notify is true. Its queue pair is
// destroyed, and its operations end, in a later turn.
func (q *lentQP) end(cause error, notify bool) {
	if q.over {
		return
	}
	q.over, q.cause = true, cause
	c, l := q.c, q.c.l
	if q.asks {
		delete(c.asked, q.number)
		if !q.ready && q.pair != nil {
			l.lending.unanswered--
		}
	} else {
		delete(c.answered, q.number)
	}
	if notify && !(q.asks && q.pair == nil) { // otherwise the peer was not asked yet
		c.sendLent(lentMessage{kind: lentEnd, number: q.number, asker: q.asks})
	}
	if q.pair != nil {
		l.lending.steps.dying = append(l.lending.steps.dying, q)
	}
}

// pollLent handles completions of lentQPs, a bounded number.
func (l *Link) pollLent(sink link.Sink) (work int) {
	for _, d := range l.lending.domains {
		if d.inFlight == 0 {
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
	if q := d.lentQPs[uint32(x.id>>32)]; q != nil {
		q.completed(x, sink)
	}
	return 1
}

// failAll ends all lentQPs of a domain whose completion queue has failed.
func (d *domain) failAll(cause error) {
	for _, q := range d.lentQPs {
		q.fail(fmt.Errorf("%w: %w", link.ErrBroken, cause))
	}
}

// armLent asks for events at the next completions of lentQPs. It reports whether there
// are some already.
func (l *Link) armLent() (work bool) {
	for _, d := range l.lending.domains {
		if d.inFlight == 0 {
			continue
		}
		d.nic.acknowledge()
		if err := d.nic.arm(); err != nil {
			d.failAll(err)
			work = true
			continue
		}
		// No event reports completions that were there before.
		if n, err := d.nic.poll(l.lending.comps[:]); err == nil {
			d.stash = append(d.stash, l.lending.comps[:n]...)
		}
		work = work || len(d.stash) > 0
	}
	return work
}

// prober is a pair that can check whether it still works.
type prober interface{ check() error }

// probeLent ends lentQPs that complete no requests any more, for example because their
// application has destroyed them, and those that the peer has not answered: each counts
// against the bounds.
func (l *Link) probeLent() {
	now, probes := l.lending.clock(), probesPerTurn
	for _, d := range l.lending.domains {
		if d.inFlight == 0 && l.lending.unanswered == 0 {
			continue
		}
		for _, q := range d.lentQPs {
			if q.over {
				continue
			}
			if q.asks && !q.ready && now.Sub(q.since) >= silenceMax {
				q.c.noteFailure(q.domains())
				q.end(errUnanswered, true)
				continue
			}
			if q.progressed {
				q.progressed, q.since, q.probed = false, now, now
			}
			if q.ops.inFlight == 0 || now.Sub(q.probed) < probeAfter {
				continue
			}
			if now.Sub(q.since) >= silenceMax {
				q.fail(errSilent)
			} else if p, ok := q.pair.(prober); ok && probes > 0 {
				probes--
				q.probed = now
				if err := p.check(); err != nil {
					q.fail(fmt.Errorf("%w: %w", link.ErrBroken, err))
				}
			}
		}
	}
}
