package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

const (
	sendDepth   = 64 // requests of a queue pair that are not known to be complete
	signalEvery = 16 // among this many requests at least one asks for a completion
	opsLeave    = 16 // requests that operations leave to frames, so that a small message does not wait for a large one
)

// conn is one queue pair and its state.
type conn struct {
	l       *Link
	tag     uint32
	peer    link.Peer
	fd      int // socket; -1: none
	pair    pair
	local   offer
	remote  offer
	inOrder bool

	delivered uint64 // number of the last frame reported to the core as delivered

	receives *receives // its own; nil: it shares the link's
	open     int       // of its own receives: posted, without a completion
	credit   credit

	sendQueue
	out    outgoing
	casts  casts
	cutReg int32 // use of the registered memory of a half sent frame, -1: none
	in     incoming
	ops    operations

	lentQueues
	parting

	once      sync.Once // guards release
	err       error
	early     []completion
	kept      [][]byte // messages of early, copied out of shared slots
	adopted   bool
	ended     bool
	listed    bool // it is in the link's list
	isPending bool
	slotUse
}

// slotUse is a connection's use of the link's slots for messages.
type slotUse struct {
	starved     bool // it waits for a slot
	held        int  // number of slots in use
	unsignalled bool // memory in use since the last request that asked for a completion
}

// sendQueue holds the requests of a connection: those posted to its queue pair, in a
// ring.
type sendQueue struct {
	requests [sendDepth]posted
	sent     uint32 // number of requests since the start
	done     uint32 // number of completed requests
}

// lentQueues are the lentQPs of a connection.
type lentQueues struct {
	asked, answered map[uint32]*lentQP // by the asker's number
	lastLent        uint32
	lentQPs         int       // number of queue pairs that exist
	wanted          []*lentQP // waiting to be made; some have ended meanwhile
	wants           bool      // wanted is not empty, and lentSteps.wanting has the connection
	lentOut         [][]byte  // messages about lentQPs, not posted yet
}

// parting is the state of a connection's end: its queue pair is moved to the error state,
// then all messages that have arrived on it are handed over, and then none of its
// requests is posted any more.
type parting struct {
	errorSince   time.Time // when its queue pair was moved to the error state
	pairGone     bool      // that failed: the queue pair does not exist any more
	lastReported bool      // it takes no more of the shared receives
	marked       bool      // no more messages arrive on it; those that have arrived are handed over when mark is passed
	mark         passage
	settled      bool      // mark is passed, and none of its receives is posted any more
	replacedAt   time.Time // when a new connection to the peer began to wait for its end
	cause        error     // why it was closed
}

// posted is what remains to do when a request completes.
type posted struct {
	slot int32  // slot of a message, -1: none
	op   int32  // operation, -1: none
	reg  int32  // use of registered memory, -1: none
	last uint64 // number of the last frame that is delivered when it completes; 0: no frame ends with it
}

// noWork is a posted request with nothing to do when it completes.
var noWork = posted{slot: -1, op: -1, reg: -1}

func gidText(gid [16]byte) string { return netip.AddrFrom16(gid).Unmap().String() }

// fail ends c with err in the next Poll. If a message that is handed over because c ends
// (settle.go) breaks the protocol, that is the error that is reported.
func (c *conn) fail(err error) {
	switch {
	case c.err == nil:
		if c.err = err; c.listed {
			c.l.failed++
		}
	case errors.Is(err, link.ErrProtocol) && !errors.Is(c.err, link.ErrProtocol):
		c.err = err
	}
}

// breakPair moves the queue pair to the error state. If receives are shared and none of
// c's requests is in flight, no event reports that until the next request, at the latest
// the engine's heartbeat.
func (c *conn) breakPair() {
	_ = c.pair.fail() // an error means that it is broken already
	if c.receives == nil && c.room() > 0 {
		c.push(request{op: opSend, imm: c.credit.spend(), flags: flagSignal}, noWork)
		c.flush()
	}
}

// schedule makes the next Commit visit c.
func (c *conn) schedule() {
	if !c.isPending {
		c.isPending = true
		c.l.todo.pending = append(c.l.todo.pending, c)
	}
}

// adopt hands c to the engine's goroutine. The next Poll handles the completions that
// arrived before.
func (c *conn) adopt() {
	c.adopted = true
	c.in.out = &c.out
	c.l.cq.stash = slices.Concat(c.early, c.l.cq.stash) // completions that Arm has stashed arrived later
	c.early = nil
}

// release releases all resources. Once the queue pair is destroyed, the device touches no
// memory for it.
func (c *conn) release() {
	c.ended = true
	// A lost device has nothing left to end; errors say nothing.
	_ = c.pair.destroy()
	if c.receives != nil {
		_ = c.receives.close()
	}
	c.closeSocket()
	if c.adopted { // the slots belong to the engine's goroutine
		if c.cutReg >= 0 {
			c.l.regs.releaseUse(c.cutReg)
			c.cutReg = -1
		}
		for ; c.done != c.sent; c.done++ {
			c.releaseRequest(&c.requests[c.done%sendDepth])
		}
		for ; c.casts.first != c.casts.next; c.casts.first++ {
			c.freeSlot(c.casts.oldest().slot)
		}
	}
	c.l.table.free(c)
}

// closeSocket closes the socket, by which the peer detects the end.
func (c *conn) closeSocket() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd) // it is not used any more
		c.fd = -1
	}
}

// releaseRequest releases what a completed request used.
func (c *conn) releaseRequest(p *posted) {
	if p.slot >= 0 {
		c.freeSlot(p.slot)
	}
	if p.reg >= 0 {
		c.l.regs.releaseUse(p.reg)
	}
}

// Post accepts frames to peer; Commit sends them.
func (l *Link) Post(peer link.Peer, frames []*link.Frame) int {
	c := l.conns[peer]
	if c == nil {
		return l.cfg.Stream.Post(peer, frames)
	}
	if c.err != nil {
		return 0
	}
	n := 0
	for _, f := range frames {
		if c.out.full() {
			c.pump()
			if c.out.full() {
				break
			}
		}
		c.out.add(f)
		n++
	}
	c.schedule()
	return n
}

// pump posts what can be posted: casts, frames, announcements of credit, pieces of
// operations. If casts have no room, frames have none either, and writes wait for the
// casts: later requests would overtake them.
func (c *conn) pump() {
	c.sendCasts()
	for c.out.count > 0 && c.credit.free() > 0 && c.room() > 0 && c.err == nil {
		if !c.sendFrames() {
			break
		}
	}
	c.postLent()
	if c.casts.count() == 0 {
		c.sendOperations()
	}
	if c.credit.due() && c.room() > 0 {
		c.push(request{op: opSend, imm: c.credit.spend()}, noWork)
	}
	c.flush()
}

func (c *conn) room() int { return sendDepth - int(c.sent-c.done) - 1 }

// allocSlot returns a slot for a message, or -1 if there is none now. No connection has
// more slots than are left for all others: a peer that does not complete requests keeps
// its slots, and the rest of the job must be served.
func (c *conn) allocSlot() int32 {
	l := c.l
	if !c.canAllocSlot() {
		c.flush() // may free some
	}
	n := len(l.stage.free)
	if !c.canAllocSlot() {
		c.starved, l.stage.starving = true, l.stage.starving || n == 0 // otherwise one of its own slots wakes it
		return -1
	}
	s := l.stage.free[n-1]
	l.stage.free = l.stage.free[:n-1]
	c.held++
	return s
}

func (c *conn) canAllocSlot() bool {
	n := len(c.l.stage.free)
	return n > c.held || n > 0 && len(c.l.list) <= 1
}

// freeSlot releases a slot.
func (c *conn) freeSlot(s int32) {
	c.l.stage.free = append(c.l.stage.free, s)
	if c.held--; c.starved && !c.ended {
		c.starved = false
		c.schedule()
	}
}

// sendFrames posts one message of frames.
func (c *conn) sendFrames() bool {
	l := c.l
	s := c.allocSlot()
	if s < 0 {
		return false
	}
	m := c.out.fill(l.stage.slot(s), l.memory, l.gatherUse)
	r := request{
		op: opSend, imm: c.credit.spend(), addr: l.stage.addr(s), lkey: l.stage.at.lkey, length: uint32(m.used),
	}
	p := noWork
	p.slot, p.last = s, m.last
	if n := m.gather.Len; n > 0 {
		p.reg = c.payloadUse()
		r.addr2, r.lkey2 = l.regs.address(p.reg, m.gather)
		r.length2 = uint32(n)
	}
	l.stats.Sends++
	l.stats.BytesOut += uint64(m.used) + m.gather.Len
	c.pushStaged(r, p)
	return true
}

// gatherUse decides whether a payload is gathered, and begins its use then.
func (l *Link) gatherUse(ref link.Ref) bool {
	l.chosenReg = l.regs.choose(ref)
	return l.chosenReg >= 0
}

// payloadUse returns the use of the payload that was just packed, for its request. A
// frame that is cut keeps a use for its next part, too.
func (c *conn) payloadUse() int32 {
	l, n := c.l, c.cutReg
	if l.chosenReg >= 0 {
		n, l.chosenReg = l.chosenReg, -1
	}
	c.cutReg = -1
	if c.out.count > 0 && c.out.next().done > 0 {
		c.cutReg = n
		l.regs.retain(n)
	}
	return n
}

// pushStaged posts a message whose bytes are in a slot. The call copies small messages,
// and the slot is free then.
func (c *conn) pushStaged(r request, p posted) {
	if r.length2 == 0 && int(r.length) <= c.l.batch.inline {
		s := p.slot
		r.flags |= flagInline
		p.slot = -1
		c.push(r, p)
		c.l.batch.slots = append(c.l.batch.slots, s)
		return
	}
	c.push(r, p)
}

// push adds a request to the batch.
func (c *conn) push(r request, p posted) {
	l := c.l
	if len(l.batch.requests) == batchMax {
		c.flush()
	}
	if r.op != opWrite || p.op >= 0 { // not a cast
		l.cq.skipPolls = 0
	}
	r.id = idOf(c.tag, c.sent)
	c.requests[c.sent%sendDepth] = p
	c.sent++
	switch {
	case p.op >= 0 || c.sent%signalEvery == 0:
		r.flags |= flagSignal
		c.unsignalled = false
	case p.slot >= 0 || p.reg >= 0:
		c.unsignalled = true
	}
	l.batch.requests = append(l.batch.requests, r)
}

// flush posts the batch. Its last request asks for a completion if memory that one of the
// requests uses waits for it: a rank's memory must not stay registered until other
// messages are sent.
func (c *conn) flush() {
	l := c.l
	if len(l.batch.requests) == 0 {
		return
	}
	if c.unsignalled {
		l.batch.requests[len(l.batch.requests)-1].flags |= flagSignal
		c.unsignalled = false
	}
	if c.err == nil {
		if err := c.pair.post(l.batch.requests); err != nil {
			c.fail(fmt.Errorf("%w: %s: posting: %w", link.ErrBroken, l.port.Device, err))
		}
	}
	l.stats.Calls++
	l.stage.free = append(l.stage.free, l.batch.slots...)
	c.held -= len(l.batch.slots)
	l.batch.slots, l.batch.requests = l.batch.slots[:0], l.batch.requests[:0]
}

// completed handles one completion.
func (c *conn) completed(x *completion, sink link.Sink) {
	number := uint32(x.id)
	switch {
	case number&idReceive != 0:
		c.arrived(x, int(number&^uint32(idReceive)), sink)
	case x.status != statusOK:
		// Requests before it are complete. The status identifies the one that was
		// refused; all others are only flushed.
		c.markRefused(number, x.status)
		c.fail(c.statusError("sending", x))
	default:
		c.retire(number, sink)
	}
}

// markRefused records that the peer's device has refused an operation.
func (c *conn) markRefused(number, status uint32) {
	behind := (number - c.done) & numberMax
	if status != statusAccess || behind >= c.sent-c.done {
		return
	}
	if op := c.requests[(c.done+behind)%sendDepth].op; op >= 0 {
		c.ops.table[op].refused = true
	}
}

func (c *conn) statusError(doing string, x *completion) error {
	return fmt.Errorf("%w: %s, queue pair %#x, %s: %s", link.ErrBroken, c.l.port.Device, c.local.pair, doing, statusText(x.raw))
}

// retire completes the requests up to number. They complete in order.
func (c *conn) retire(number uint32, sink link.Sink) {
	n := (number-c.done)&numberMax + 1
	if n > c.sent-c.done {
		return // not a request of this connection
	}
	last := c.delivered
	for upto := c.done + n; c.done != upto && !c.ended; {
		p := c.requests[c.done%sendDepth]
		c.done++
		c.releaseRequest(&p)
		last = max(last, p.last)
		if p.op >= 0 {
			c.operated(p.op, sink)
		}
	}
	if last > c.delivered && !c.ended {
		c.delivered = last
		sink.Delivered(c.peer, last)
	}
	c.scheduleIfReady()
}

// scheduleIfReady makes the next Commit visit c if c may send something.
func (c *conn) scheduleIfReady() {
	if c.out.count > 0 || c.casts.count() > 0 || len(c.lentOut) > 0 || c.ops.turn() >= 0 || c.credit.due() {
		c.schedule()
	}
}

// arrived handles a message in a slot of c's own, or one that keepEarly has copied.
func (c *conn) arrived(x *completion, slot int, sink link.Sink) {
	r := c.receives
	if r == nil {
		c.received(x, c.kept[slot], sink)
		c.kept[slot] = nil
		c.credit.repost(1)
		c.scheduleIfReady()
		return
	}
	if c.open--; !r.has(slot) {
		return
	}
	c.received(x, r.slot(slot), sink)
	if c.ended || c.err != nil {
		return
	}
	posted, err := r.repost(int32(slot))
	if err != nil {
		c.fail(fmt.Errorf("%w: %s: %w", link.ErrBroken, c.l.port.Device, err))
		return
	}
	c.open += posted
	c.credit.repost(posted)
	c.scheduleIfReady()
}

// received handles a message in mem.
func (c *conn) received(x *completion, mem []byte, sink link.Sink) {
	switch {
	case x.status != statusOK:
		c.fail(c.statusError("receiving", x))
		return
	case x.op == opReceive && x.length > slotBytes || errors.Is(c.err, link.ErrProtocol):
		return
	}
	l := c.l
	l.stats.Receives++
	if x.op == opReceiveNotify {
		notify, ok := c.credit.onNotify(x.imm)
		if !ok {
			c.fail(errGranted)
			return
		}
		sink.Written(c.peer, uint64(notify))
		return
	}
	l.stats.BytesIn += uint64(x.length)
	if err := c.onMessage(x.imm, mem[:x.length], sink); err != nil {
		c.fail(err)
	}
}

var errGranted = fmt.Errorf("%w: the peer grants more receives than it has, or sends more messages than it has credit for", link.ErrProtocol)

func (c *conn) onMessage(imm uint32, b []byte, sink link.Sink) error {
	if !c.credit.onMessage(imm&creditMask, len(b) > 0) {
		return errGranted
	}
	if imm&notifyBit == 0 {
		return c.in.receive(c.peer, b, sink, &c.ended)
	}
	if len(b) != notifyBytes {
		return c.onLent(b)
	}
	notify, err := parseNotify(b)
	if err == nil {
		sink.Written(c.peer, notify)
	}
	return err
}
