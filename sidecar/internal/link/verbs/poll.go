package verbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// streamSink passes the events of the stream on, for peers without a queue pair.
type streamSink struct {
	link.Sink
	l *Link
}

// Commit posts the frames and operations since the last Commit, with one call for each
// connection.
func (l *Link) Commit() {
	if len(l.todo.pending) > 0 || l.stage.starving { // the rare case, of four Commits a turn
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
				c.schedule()
			}
		}
	}
}

// Poll posts waiting requests, handles completions, and polls the sockets and the
// device's events now and then.
func (l *Link) Poll(sink link.Sink) int {
	l.streaming.Sink = sink
	work := l.cfg.Stream.Poll(&l.streaming) + l.turn()
	l.Commit()
	if l.cq.skipPolls > 0 {
		l.cq.skipPolls--
		work += l.drainStash(sink)
	} else {
		l.cq.polled = true
		work += l.drain(sink)
	}
	if l.lending.lentQPs > 0 && l.lost == nil {
		work += l.pollLent(sink)
	}
	if l.table.anyReturned.Load() {
		l.collectReturned()
	}
	if len(l.closing) > 0 {
		l.continueEnds()
		work++ // their ends may not be over
	}
	if l.watch.due() {
		if l.lending.lentQPs > 0 {
			l.probeLent()
		}
		work += l.pollSockets(sink)
	}
	if len(l.lending.steps.wanting)+len(l.lending.steps.joins)+len(l.lending.steps.dying) > 0 {
		work += l.stepLent()
	}
	if l.regs.chooser.Settle(settlesPerPoll) {
		work++
	}
	l.Commit()
	return work + l.reportEnds(sink)
}

// turn begins a turn with a fresh budget of registrations, and continues the connections
// that waited for it.
func (l *Link) turn() int {
	l.regs.chooser.Turn()
	if l.todo.idle() {
		return 0
	}
	n := len(l.todo.late)
	for _, c := range l.todo.late {
		if !c.ended {
			c.schedule()
		}
	}
	clear(l.todo.late)
	l.todo.late = l.todo.late[:0]
	lentQPs := l.todo.lentLate
	l.todo.lentLate = nil
	for _, q := range lentQPs {
		if q.behind = false; !q.over {
			q.pump()
		}
	}
	return n + len(lentQPs)
}

// drain handles completions, at most pollBudget.
func (l *Link) drain(sink link.Sink) (work int) {
	work = l.drainStash(sink)
	if l.lost != nil {
		return work
	}
	for budget := pollBudget; budget > 0; {
		l.stats.Polls++
		poll := l.stats.Polls
		n, err := l.nic.poll(l.cq.batch[:])
		if err != nil {
			l.deviceLost(fmt.Errorf("polling the completion queue: %w", err))
			return work
		}
		l.cq.handled += uint64(n)
		for i := range l.cq.batch[:n] {
			l.completed(&l.cq.batch[i], sink)
		}
		work += n
		if budget -= n; n < len(l.cq.batch) {
			if len(l.cq.stash) == 0 {
				l.cq.emptyAt = poll
			}
			break
		}
	}
	l.stats.Completions += uint64(work)
	return work
}

// drainStash handles the completions that were polled before.
func (l *Link) drainStash(sink link.Sink) (work int) {
	if list := l.cq.stash; len(list) > 0 {
		l.cq.stash, l.cq.spare = l.cq.spare, nil // a message that is handed over may end other connections, which adds to the stash
		work += len(list)
		l.cq.handled += uint64(len(list))
		for i := range list {
			l.completed(&list[i], sink)
		}
		l.cq.spare = list[:0]
	}
	return work
}

// drainAll handles all completions in the queue. It stops after as many as the queue has
// room for, since more may arrive all the time.
func (l *Link) drainAll(sink link.Sink) {
	for n := 0; n < len(l.table.by)*perConn; {
		k := l.drain(sink)
		if k == 0 {
			return
		}
		n += k
	}
}

// completed finds the connection of a completion. It drops a completion of a lost
// connection, and stores one of a connection that was not joined yet.
func (l *Link) completed(x *completion, sink link.Sink) {
	tag := uint32(x.id >> 32)
	if tag == tagIndex {
		l.arrived(x, sink)
		return
	}
	c := l.table.conn(tag)
	switch {
	case c == nil:
	case !c.adopted: // nothing else of it belongs to this goroutine
		if len(c.early) < earlyMax {
			c.early = append(c.early, *x)
		}
	case !c.ended:
		c.completed(x, sink)
	}
}

// pollSockets handles the events of the sockets and of the device.
func (l *Link) pollSockets(sink link.Sink) (work int) {
	work += l.handleFaults(sink) // those reported meanwhile
	n, err := unix.EpollWait(l.watch.epoll, l.watch.events[:], 0)
	if err != nil {
		return 0 // EINTR: next time
	}
	for _, ev := range l.watch.events[:n] {
		switch {
		case ev.Fd != noOwner:
			work += l.checkSocket(link.Peer(ev.Fd), sink)
		case int(ev.Pad) == l.cfg.Stream.FD(), int(ev.Pad) == l.table.bell: // Poll has polled it already
		case l.lending.byEvent[int(ev.Pad)] != nil: // Poll has polled it already; the event must be acknowledged
			l.lending.byEvent[int(ev.Pad)].nic.acknowledge()
		default:
			l.pollFaults()
			work += l.handleFaults(sink)
		}
	}
	return work
}

// errSocket means that the peer has closed the socket.
var errSocket = fmt.Errorf("%w: the socket was closed by the peer", link.ErrBroken)

// checkSocket reads the socket of a peer, which must stay silent. Messages that the peer
// sent before it closed the socket are handed over first (settle.go).
func (l *Link) checkSocket(peer link.Peer, sink link.Sink) int {
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
		err = fmt.Errorf("%w: bytes on the socket of a connection over RDMA", link.ErrProtocol)
	default:
		err = errSocket
	}
	c.fail(err)
	return 1
}

// handleFaults handles the events that the device has reported.
func (l *Link) handleFaults(sink link.Sink) (work int) {
	for l.lost == nil && len(l.watch.faults) > 0 {
		f := l.watch.faults[0]
		l.watch.faults = l.watch.faults[1:]
		work++
		switch {
		case f.device:
			l.drainAll(sink) // messages that it has accepted, as far as it still reports them
			l.deviceLost(errors.New(f.what))
		case f.port:
			for _, c := range l.list {
				c.fail(fmt.Errorf("%w: %s port %d: %s", link.ErrBroken, l.port.Device, l.port.Number, f.what))
			}
		case f.note && f.what == "":
		case f.note:
			l.cfg.Log.Warn("the RDMA device reports", "device", l.port.Device, "what", f.what)
		default:
			l.failPair(f)
		}
	}
	return work
}

func (l *Link) failPair(f fault) {
	for _, c := range l.list {
		if c.local.pair == f.pair {
			c.fail(fmt.Errorf("%w: %s: %s", link.ErrBroken, l.port.Device, f.what))
		}
	}
}

func (l *Link) reportEnded(sink link.Sink) (work int) {
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
