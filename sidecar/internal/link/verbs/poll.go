package verbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// streamSink passes on what the stream tells of peers without a queue pair.
type streamSink struct {
	link.Sink
	l *Link
}

// Commit posts what has been handed over since, one call a connection.
func (l *Link) Commit() {
	if len(l.todo.pending) > 0 || l.stage.starving { // seldom, of the four of a turn
		l.commit()
	}
}

func (l *Link) commit() {
	for i := 0; i < len(l.todo.pending); i++ {
		c := l.todo.pending[i]
		c.isPending = false
		if !c.ended && c.err == nil {
			c.pump()
		}
	}
	clear(l.todo.pending)
	l.todo.pending = l.todo.pending[:0]
	if l.stage.starving && len(l.stage.free) > 0 {
		l.stage.starving = false
		for _, c := range l.list {
			if c.starved {
				c.starved = false
				c.later()
			}
		}
	}
}

// Poll posts what waits, takes completions, and looks now and then at the sockets
// and for faults.
func (l *Link) Poll(sink link.Sink) int {
	l.streaming.Sink = sink
	work := l.cfg.Stream.Poll(&l.streaming) + l.turn()
	l.Commit()
	if l.cq.unasked > 0 {
		l.cq.unasked--
		work += l.drainStash(sink)
	} else {
		l.cq.asked = true
		work += l.drain(sink)
	}
	if l.lending.lanes > 0 && l.gone == nil {
		work += l.pollLanes(sink)
	}
	if l.places.anyGiven.Load() {
		l.takeGiven()
	}
	if len(l.left) > 0 {
		l.endLeft()
		work++ // it may not be over
	}
	if l.watch.due() {
		if l.lending.lanes > 0 {
			l.probeLanes()
		}
		work += l.watchful(sink)
	}
	if len(l.lending.steps.wanting)+len(l.lending.steps.joins)+len(l.lending.steps.dying) > 0 {
		work += l.stepLanes()
	}
	if l.known.chooser.Settle(settleStep) {
		work++
	}
	l.Commit()
	return work + l.tell(sink)
}

// turn begins a turn, in which as much may be registered as in the last one, and lets
// those go on that waited for it.
func (l *Link) turn() int {
	l.known.chooser.Turn()
	if l.todo.idle() {
		return 0
	}
	n := len(l.todo.late)
	for _, c := range l.todo.late {
		if !c.ended {
			c.later()
		}
	}
	clear(l.todo.late)
	l.todo.late = l.todo.late[:0]
	lanes := l.todo.behind
	l.todo.behind = nil
	for _, ln := range lanes {
		if ln.behind = false; !ln.over {
			ln.pump()
		}
	}
	return n + len(lanes)
}

// drain handles completions, a bounded number.
func (l *Link) drain(sink link.Sink) (work int) {
	work = l.drainStash(sink)
	if l.gone != nil {
		return work
	}
	for budget := pollBudget; budget > 0; {
		l.stats.Polls++
		look := l.stats.Polls
		n, err := l.nic.poll(l.cq.batch[:])
		if err != nil {
			l.lose(fmt.Errorf("asking for completions: %w", err))
			return work
		}
		l.cq.handled += uint64(n)
		for i := range l.cq.batch[:n] {
			l.completed(&l.cq.batch[i], sink)
		}
		work += n
		if budget -= n; n < len(l.cq.batch) {
			if len(l.cq.stash) == 0 {
				l.cq.dry = look
			}
			break
		}
	}
	l.stats.Completions += uint64(work)
	return work
}

// drainStash handles those that were taken before.
func (l *Link) drainStash(sink link.Sink) (work int) {
	if list := l.cq.stash; len(list) > 0 {
		l.cq.stash, l.cq.spare = l.cq.spare, nil // what is handed over may end others, which adds to it
		work += len(list)
		l.cq.handled += uint64(len(list))
		for i := range list {
			l.completed(&list[i], sink)
		}
		l.cq.spare = list[:0]
	}
	return work
}

// drainAll handles all completions that are here: as many as the queue has room
// for, since others may go on bringing more.
func (l *Link) drainAll(sink link.Sink) {
	for n := 0; n < len(l.places.by)*perConn; {
		k := l.drain(sink)
		if k == 0 {
			return
		}
		n += k
	}
}

// completed finds whose completion it is. One of a connection that is gone is
// nobody's; one of a connection that this side has not taken over yet is kept.
func (l *Link) completed(x *completion, sink link.Sink) {
	tag := uint32(x.id >> 32)
	if tag == tagIndex {
		l.arrived(x, sink)
		return
	}
	c := l.places.of(tag)
	switch {
	case c == nil:
	case !c.adopted: // nothing else of it is this goroutine's
		if len(c.early) < earlyMax {
			c.early = append(c.early, *x)
		}
	case !c.ended:
		c.completed(x, sink)
	}
}

// watchful looks at sockets and for faults.
func (l *Link) watchful(sink link.Sink) (work int) {
	work += l.faults(sink) // that were heard of meanwhile
	n, err := unix.EpollWait(l.watch.epoll, l.watch.events[:], 0)
	if err != nil {
		return 0 // EINTR: next time
	}
	for _, ev := range l.watch.events[:n] {
		switch {
		case ev.Fd != ownedByNone:
			work += l.socket(link.Peer(ev.Fd), sink)
		case int(ev.Pad) == l.cfg.Stream.FD(), int(ev.Pad) == l.places.bell: // it was polled
		case l.lending.bells[int(ev.Pad)] != nil: // it was polled, and may have nothing more to be armed for
			l.lending.bells[int(ev.Pad)].nic.acknowledge()
		default:
			l.hear()
			work += l.faults(sink)
		}
	}
	return work
}

// errSocket says that the sign of life has ended.
var errSocket = fmt.Errorf("%w: the socket was closed by the peer", link.ErrBroken)

// socket looks at the socket of a peer, on which nothing is ever sent. What the
// peer sent before it closed it comes first (settle.go).
func (l *Link) socket(peer link.Peer, sink link.Sink) int {
	c := l.conns[peer]
	if c == nil || c.err != nil {
		return 0
	}
	var b [1]byte
	n, _, err := unix.Recvfrom(c.fd, b[:], unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0
	case err != nil:
		err = fmt.Errorf("%w: socket: %w", link.ErrBroken, err)
	case n > 0:
		err = fmt.Errorf("%w: bytes on the socket of a connection by RDMA", link.ErrProtocol)
	default:
		err = errSocket
	}
	c.fail(err)
	return 1
}

// faults handles what the device has told.
func (l *Link) faults(sink link.Sink) (work int) {
	for l.gone == nil && len(l.watch.heard) > 0 {
		f := l.watch.heard[0]
		l.watch.heard = l.watch.heard[1:]
		work++
		switch {
		case f.device:
			l.drainAll(sink) // what it has taken in, as far as it still says so
			l.lose(errors.New(f.what))
		case f.port:
			for _, c := range l.list {
				c.fail(fmt.Errorf("%w: %s port %d: %s", link.ErrBroken, l.port.Device, l.port.Number, f.what))
			}
		case f.note && f.what == "":
		case f.note:
			l.cfg.Log.Warn("the RDMA device reports", "device", l.port.Device, "what", f.what)
		default:
			l.faulty(f)
		}
	}
	return work
}

func (l *Link) faulty(f fault) {
	for _, c := range l.list {
		if c.local.pair == f.pair {
			c.fail(fmt.Errorf("%w: %s: %s", link.ErrBroken, l.port.Device, f.what))
		}
	}
}

func (l *Link) tellEnded(sink link.Sink) (work int) {
	for len(l.ended) > 0 {
		list := l.ended
		l.ended = nil
		for _, e := range list {
			sink.Done(e.peer, e.token, e.err)
		}
		work += len(list)
	}
	return work
}
