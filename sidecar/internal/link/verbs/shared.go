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

// Receives of one connection are pinned memory whether its peer speaks or not: 65 KiB
// each. From more than sharedMax of them on, connections share a queue instead
// (InfiniBand Architecture Specification, vol. 1, 10.2.9), into which every peer may
// send what its credit allows:
//
//	peer 0 --.                                    .--> slot 7 --> whose? the completion
//	peer 1 ---+--> queue pairs --> shared queue --+--> slot 2      has the number of
//	peer 2 --'                                    '--> slot 9      its queue pair
//
// All credit together may then be more than there is. A peer that comes when nothing is
// posted is asked by its device to come again after 0.64 ms (rnrPause), for ever; slots
// are posted again as soon as they are read.
const (
	sharedMax   = 2048
	sharedBatch = 16 // posted again by one call; so many more slots than credit needs
)

// sharing is the receives of all connections. The zero value: each has its own.
type sharing struct {
	receives *receives
	queue    sharedQueue
	byPair   map[uint32]*conn // that share them, by the number of their queue pair
	silent   bool             // the device did not say that one takes no more of them
}

// shareReceives makes the shared queue, if there are enough peers, or it is asked for.
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
	l.sharing.byPair, l.places.fresh = map[uint32]*conn{}, map[uint32]*conn{}
	if l.places.bell, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return fmt.Errorf("verbs: eventfd: %w", err)
	}
	return nil
}

// close ends them.
func (s *sharing) close() (err error) {
	if s.queue != nil {
		err = s.queue.destroy()
	}
	if s.receives != nil {
		err = errors.Join(err, s.receives.close())
	}
	return err
}

// sharedSlots is how many shared receives there are.
func (l *Link) sharedSlots() int {
	if l.sharing.receives == nil {
		return 0
	}
	return len(l.sharing.receives.mem) / slotBytes
}

// arrived hands over what came into a shared slot, and posts that again.
func (l *Link) arrived(x *completion, sink link.Sink) {
	slot := int(uint32(x.id) &^ idReceive)
	if !l.sharing.receives.has(slot) {
		return
	}
	switch c := l.whose(x.pair); {
	case c == nil: // it is gone
	case !c.adopted:
		c.keep(x, l.sharing.receives.slot(slot))
	case !c.ended:
		if c.received(x, l.sharing.receives.slot(slot), sink); !c.ended && c.err == nil {
			c.credit.repost(1)
			c.goOn()
		}
	}
	l.again(slot)
}

func (l *Link) again(slot int) {
	if _, err := l.sharing.receives.again(int32(slot)); err != nil {
		l.lose(err)
	}
}

// whose is the connection of a queue pair: of one that is connected, since others get
// no messages, and its number may have been another's a moment ago.
func (l *Link) whose(pair uint32) *conn {
	if c := l.sharing.byPair[pair]; c != nil {
		return c
	}
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	return l.places.fresh[pair]
}

// expect notes that messages may come on a connection that is not the engine's yet.
func (l *Link) expect(c *conn) {
	if l.sharing.receives == nil {
		return
	}
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.places.fresh[c.local.pair] = c
}

// keep copies a message out of a shared slot until c is the engine's.
func (c *conn) keep(x *completion, mem []byte) {
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

// giveUp leaves an end that nobody has taken over to the engine, and reports whether it
// has to be.
func (l *Link) giveUp(c *conn) bool {
	if l.sharing.receives == nil {
		return false
	}
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	if l.places.closed || l.places.fresh[c.local.pair] != c {
		return false // nothing can have come
	}
	l.places.given = append(l.places.given, c)
	l.places.anyGiven.Store(true)
	_, _ = unix.Write(l.places.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // it is not full: a sleeper is woken once
	return true
}

// takeGiven takes over what was given up: it ends as what was left.
func (l *Link) takeGiven() {
	l.places.mu.Lock() // the bell is rung under it, too: one that rings has somebody to be ended
	defer l.places.mu.Unlock()
	var b [8]byte
	_, _ = unix.Read(l.places.bell, b[:]) // rung, or not
	for _, c := range l.places.given {
		if !slices.Contains(l.left, c) { // it was given up twice
			l.left = append(l.left, c)
		}
	}
	l.places.given = nil
	l.places.anyGiven.Store(false)
}

// How long a device is waited for that does not say that a queue pair takes no more
// receives: Soft-RoCE of Linux 6.1 never does. Once it was silent, so long.
const (
	lastWithin  = settleWithin / 2
	silentAfter = 5 * time.Millisecond
)

// over reports that nothing more comes on a connection with shared receives: its device
// says so (hear), or has had the time to.
func (l *Link) over(c *conn, within time.Duration) bool {
	if c.reached {
		return true
	}
	if l.sharing.silent {
		within = silentAfter
	}
	if time.Since(c.sunk) <= within {
		return false
	}
	if within == lastWithin {
		l.sharing.silent = true
		l.cfg.Log.Info("the device does not say when a queue pair takes no more shared receives", "device", l.port.Device, "waited", lastWithin, "then", silentAfter)
	}
	return true
}

// hear takes out what the device tells. That a queue pair takes no more receives is
// noted here, for whoever waits for it; where this side has not asked for it, nothing
// else may tell that the queue pair has failed: no receive is flushed.
func (l *Link) hear() {
	for l.gone == nil {
		f, ok := l.nic.fault()
		if !ok {
			return
		}
		if !f.last {
			l.watch.heard = append(l.watch.heard, f)
			continue
		}
		l.sharing.silent = false
		if c := l.whose(f.pair); c != nil {
			c.reached = true
			if c.sunk.IsZero() {
				c.fail(fmt.Errorf("%w: %s, queue pair %#x: %s", link.ErrBroken, l.port.Device, f.pair, f.what))
			}
		}
	}
}
