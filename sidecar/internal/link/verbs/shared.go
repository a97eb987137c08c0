package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Receives of one connection are locked memory whether its peer sends or not: 65 KiB
// each. If the connections together would need more than sharedMax of them, they share a
// queue instead (InfiniBand Architecture Specification, vol. 1, 10.2.9), into which every
// peer may send as its credit allows:
//
//	peer 0 --.                                    .--> slot 7 --> the completion has the
//	peer 1 ---+--> queue pairs --> shared queue --+--> slot 2      number of the queue
//	peer 2 --'                                    '--> slot 9      pair
//
// The sum of all credits may then exceed the receives. If none is posted when a message
// arrives, the device asks the peer to repeat it after 0.64 ms (rnrPause), for ever;
// slots are posted again as soon as they are read.
const (
	sharedMax   = 2048 // 8.1 MiB of locked memory
	sharedBatch = 16   // posted again by one call; so many slots are in addition to those that credit needs
)

// sharing is the receives of all connections. Zero value: each connection has its own.
type sharing struct {
	receives *receives
	queue    sharedQueue
	byPair   map[uint32]*conn // connections that share them, by the number of their queue pair
	silent   bool             // the device did not report that a pair takes no more of them
}

// shareReceives makes the shared queue if there are enough peers, or if it is configured.
func (l *Link) shareReceives() error {
	need, most := l.cfg.Peers*recvSlots, cmp.Or(l.cfg.SharedMax, sharedMax)
	if l.cfg.Receives == bootstrap.ReceivesOwn || l.cfg.Receives != bootstrap.ReceivesShared && need <= most {
		return nil
	}
	slots := min(need, most) + sharedBatch
	queue, err := l.nic.newShared(slots)
	if errors.Is(err, errNoShared) {
		l.cfg.Log.Info("every connection has receives of its own", "cause", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("verbs: shared receives: %w", err)
	}
	l.sharing.queue = queue
	if l.sharing.receives, err = newReceives(l.nic, slots, sharedBatch); err == nil {
		err = l.sharing.receives.use(queue, idShared)
	}
	if err != nil {
		return fmt.Errorf("verbs: shared receives: %w", err)
	}
	l.sharing.byPair, l.table.unjoined = map[uint32]*conn{}, map[uint32]*conn{}
	if l.table.bell, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return fmt.Errorf("verbs: eventfd: %w", err)
	}
	return nil
}

// close destroys the queue and its memory.
func (s *sharing) close() (err error) {
	if s.queue != nil {
		err = s.queue.destroy()
	}
	if s.receives != nil {
		err = errors.Join(err, s.receives.close())
	}
	return err
}

// sharedSlots returns the number of shared receives.
func (l *Link) sharedSlots() int {
	if l.sharing.receives == nil {
		return 0
	}
	return len(l.sharing.receives.mem) / slotBytes
}

// arrived hands over the message in a shared slot, and posts the slot again.
func (l *Link) arrived(x *completion, sink link.Sink) {
	slot := int(uint32(x.id) &^ idReceive)
	if !l.sharing.receives.has(slot) {
		return
	}
	switch c := l.connOfPair(x.pair); {
	case c == nil: // it has ended
	case !c.adopted:
		c.keepEarly(x, l.sharing.receives.slot(slot))
	case !c.ended:
		if c.received(x, l.sharing.receives.slot(slot), sink); !c.ended && c.err == nil {
			c.credit.repost(1)
			c.scheduleIfReady()
		}
	}
	l.repost(slot)
}

func (l *Link) repost(slot int) {
	if _, err := l.sharing.receives.repost(int32(slot)); err != nil {
		l.deviceLost(err)
	}
}

// connOfPair returns the connection of a queue pair. It finds only connected ones: others
// receive no messages, and their number may recently have been another connection's.
func (l *Link) connOfPair(pair uint32) *conn {
	if c := l.sharing.byPair[pair]; c != nil {
		return c
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	return l.table.unjoined[pair]
}

// expect records that messages may arrive on a connection that is not joined yet.
func (l *Link) expect(c *conn) {
	if l.sharing.receives == nil {
		return
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.table.unjoined[c.local.pair] = c
}

// keepEarly copies a message out of a shared slot until c is joined.
func (c *conn) keepEarly(x *completion, mem []byte) {
	if len(c.early) == earlyMax {
		return
	}
	var m []byte
	if x.status == statusOK && x.op == opReceive {
		m = append(m, mem[:min(x.length, slotBytes)]...)
	}
	early := *x
	early.id = uint64(c.tag)<<32 | idReceive | uint64(len(c.kept))
	c.kept = append(c.kept, m)
	c.early = append(c.early, early)
}

// returnConn passes an unjoined connection to the engine, to be ended. It returns false
// if that is not necessary.
func (l *Link) returnConn(c *conn) bool {
	if l.sharing.receives == nil {
		return false
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if l.table.closed || l.table.unjoined[c.local.pair] != c {
		return false // no message can have arrived
	}
	l.table.returned = append(l.table.returned, c)
	l.table.anyReturned.Store(true)
	_, _ = unix.Write(l.table.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // cannot be full: the reader is woken once
	return true
}

// collectReturned takes over the returned connections: they end like closed ones.
func (l *Link) collectReturned() {
	l.table.mu.Lock() // the bell is rung under it, too, so that each ring finds a connection
	defer l.table.mu.Unlock()
	var b [8]byte
	_, _ = unix.Read(l.table.bell, b[:]) // EAGAIN if it was not rung
	for _, c := range l.table.returned {
		if !slices.Contains(l.closing, c) { // it was returned twice
			l.closing = append(l.closing, c)
		}
	}
	l.table.returned = nil
	l.table.anyReturned.Store(false)
}

// lastTimeout is how long the link waits for a device to report that a queue pair takes
// no more receives: Soft-RoCE of Linux 6.1 never does. Once the device was silent, it
// waits for silentTimeout.
const (
	lastTimeout   = settleTimeout / 2
	silentTimeout = 5 * time.Millisecond
)

// over reports whether no more messages arrive on a connection with shared receives: the
// device has reported it (pollFaults), or the time for that has passed.
func (l *Link) over(c *conn, within time.Duration) bool {
	if c.lastReported {
		return true
	}
	if l.sharing.silent {
		within = silentTimeout
	}
	if time.Since(c.errorSince) <= within {
		return false
	}
	if within == lastTimeout {
		l.sharing.silent = true
		l.cfg.Log.Info("the device does not say when a queue pair takes no more shared receives", "device", l.port.Device, "waited", lastTimeout, "then", silentTimeout)
	}
	return true
}

// pollFaults takes the events of the device. It records the events that a queue pair
// takes no more receives for the ends that wait for them; if this side has not moved the
// queue pair to the error state, no other event may report that it has failed, since no
// receive is flushed.
func (l *Link) pollFaults() {
	for l.lost == nil {
		f, ok := l.nic.fault()
		if !ok {
			return
		}
		if !f.last {
			l.watch.faults = append(l.watch.faults, f)
			continue
		}
		l.sharing.silent = false
		if c := l.connOfPair(f.pair); c != nil {
			c.lastReported = true
			if c.errorSince.IsZero() {
				c.fail(fmt.Errorf("%w: %s, queue pair %#x: %s", link.ErrBroken, l.port.Device, f.pair, f.what))
			}
		}
	}
}
