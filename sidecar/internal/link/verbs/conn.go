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
	sendDepth   = 64 // requests of a queue pair that are not known to be done
	signalEvery = 16 // of them, one at least asks for a completion
	opsLeave    = 16 // requests that operations leave to frames
)

// conn is one queue pair with what belongs to it.
type conn struct {
	l       *Link
	tag     uint32
	peer    link.Peer
	fd      int // socket; -1: none
	pair    pair
	local   offer
	remote  offer
	inOrder bool

	told uint64 // the core knows that frames up to this number have come

	receives *receives // its own; nil: it shares the link's
	open     int       // of its own, those that are posted and have no completion
	credit   credit

	sendQueue
	out   outgoing
	casts casts
	cut   int32 // known memory of the frame that is half sent, -1: none
	in    incoming
	ops   operations

	lanesOf
	parting

	once      sync.Once // of release
	err       error
	early     []completion
	kept      [][]byte // messages of early, out of shared slots
	adopted   bool
	ended     bool
	listed    bool // it is one of the link's list
	isPending bool
	slotUse
}

// slotUse is what a connection has of the link's memory for messages.
type slotUse struct {
	starved bool // waits for a slot
	held    int  // slots
	waits   bool // memory in use since the last request that asked for a completion
}

// sendQueue is the requests of a connection that its queue pair has, or had.
type sendQueue struct {
	requests [sendDepth]posted
	sent     uint32 // requests, since the start
	done     uint32
}

// lanesOf are the lanes of a connection (lane).
type lanesOf struct {
	asked, answered map[uint32]*lane // by the asker's number
	lastLane        uint32
	lanes           int      // queue pairs of them that exist
	wanted          []*lane  // that are to be made; some have ended meanwhile
	wants           bool     // there are some
	words           [][]byte // to be said about lanes
}

// parting is how far the end of a connection has come: its queue pair is moved to the error state,
// all that has come on it is handed over, and then nothing of it is posted any more.
type parting struct {
	sunk     time.Time // when its queue pair was moved to the error state
	unpaired bool      // it could not be: there is no such queue pair any more
	reached  bool      // it takes no more of the shared receives
	marked   bool      // nothing comes on it any more; what has come is handed over when mark is passed
	mark     passage
	settled  bool      // that is so, and nothing it has is posted any more
	replaced time.Time // since when another connection waits for its end
	cause    error     // why it was left
}

// posted is what a request leaves to do when it is done.
type posted struct {
	slot  int32  // of a message, -1: none
	op    int32  // operation, -1: none
	known int32  // use of known memory, -1: none
	last  uint64 // number of the last frame that has come when it is done; 0: no frame ends with it
}

// nothing is left to do.
var nothing = posted{slot: -1, op: -1, known: -1}

func gidText(gid [16]byte) string { return netip.AddrFrom16(gid).Unmap().String() }

// fail ends c with err at the next look. Of what is handed over because c ends
// (settle.go), something may be against the protocol: that is the cause which is told.
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

// breakOff moves the queue pair to the error state. Nothing may tell of that where
// receives are shared and none of c's requests is under way, but for the next request,
// the engine's sign of life at the latest.
func (c *conn) breakOff() {
	_ = c.pair.fail() // broken already is as good
	if c.receives == nil && c.room() > 0 {
		c.push(request{op: opSend, imm: c.credit.spend(), flags: flagSignal}, nothing)
		c.flush()
	}
}

// later makes the next Commit look at c.
func (c *conn) later() {
	if !c.isPending {
		c.isPending = true
		c.l.todo.pending = append(c.l.todo.pending, c)
	}
}

// adopt makes c the engine's. What came before is handled by the next Poll.
func (c *conn) adopt() {
	c.adopted = true
	c.in.out = &c.out
	c.l.cq.stash = slices.Concat(c.early, c.l.cq.stash) // what Arm has taken out came later
	c.early = nil
}

// release gives everything back. Once the queue pair is destroyed the device
// touches no memory for it.
func (c *conn) release() {
	c.ended = true
	// Of a device that is gone nothing is left to end.
	_ = c.pair.destroy()
	if c.receives != nil {
		_ = c.receives.close()
	}
	c.hangUp()
	if c.adopted { // the slots are the engine's
		if c.cut >= 0 {
			c.l.known.done(c.cut)
			c.cut = -1
		}
		for ; c.done != c.sent; c.done++ {
			c.free(&c.requests[c.done%sendDepth])
		}
		for ; c.casts.first != c.casts.next; c.casts.first++ {
			c.freeSlot(c.casts.oldest().slot)
		}
	}
	c.l.places.giveBack(c)
}

// hangUp closes the socket, by which the peer hears of the end.
func (c *conn) hangUp() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd) // nothing is expected of it any more
		c.fd = -1
	}
}

// free gives back what a request used that is done.
func (c *conn) free(p *posted) {
	if p.slot >= 0 {
		c.freeSlot(p.slot)
	}
	if p.known >= 0 {
		c.l.known.done(p.known)
	}
}

// Post takes frames to peer; Commit sends them.
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
	c.later()
	return n
}

// pump posts what can be posted: casts, frames, what the peer must hear of its credit,
// pieces of operations. Casts that have no room leave none for frames, and writes wait
// for them: what comes later would overtake them.
func (c *conn) pump() {
	c.sendCasts()
	for c.out.count > 0 && c.credit.free() > 0 && c.room() > 0 && c.err == nil {
		if !c.sendFrames() {
			break
		}
	}
	c.sayWords()
	if c.casts.count() == 0 {
		c.sendOperations()
	}
	if c.credit.due() && c.room() > 0 {
		c.push(request{op: opSend, imm: c.credit.spend()}, nothing)
	}
	c.flush()
}

func (c *conn) room() int { return sendDepth - int(c.sent-c.done) - 1 }

// slot takes a slot for a message; -1: there is none now. Nobody has more of them than are
// left for all others: a peer that ends no requests keeps what it has, and the rest of the
// job must be heard.
func (c *conn) slot() int32 {
	l := c.l
	if !c.maySlot() {
		c.flush() // may free some
	}
	n := len(l.stage.free)
	if !c.maySlot() {
		c.starved, l.stage.starving = true, l.stage.starving || n == 0 // else one of its own wakes it
		return -1
	}
	s := l.stage.free[n-1]
	l.stage.free = l.stage.free[:n-1]
	c.held++
	return s
}

func (c *conn) maySlot() bool {
	n := len(c.l.stage.free)
	return n > c.held || n > 0 && len(c.l.list) <= 1
}

// freeSlot gives a slot back.
func (c *conn) freeSlot(s int32) {
	c.l.stage.free = append(c.l.stage.free, s)
	if c.held--; c.starved && !c.ended {
		c.starved = false
		c.later()
	}
}

// sendFrames posts one message of frames.
func (c *conn) sendFrames() bool {
	l := c.l
	s := c.slot()
	if s < 0 {
		return false
	}
	m := c.out.fill(l.stage.slot(s), l.memory, l.isKnown)
	r := request{
		op: opSend, imm: c.credit.spend(), addr: l.stage.addr(s), lkey: l.stage.at.lkey, length: uint32(m.used),
	}
	p := nothing
	p.slot, p.last = s, m.last
	if n := m.gather.Len; n > 0 {
		p.known = c.holding()
		r.addr2, r.lkey2 = l.known.where(p.known, m.gather)
		r.length2 = uint32(n)
	}
	l.stats.Sends++
	l.stats.BytesOut += uint64(m.used) + m.gather.Len
	c.pushStaged(r, p)
	return true
}

// isKnown decides whether a payload is gathered, and takes it into use then.
func (l *Link) isKnown(ref link.Ref) bool {
	l.chosen = l.known.choose(ref)
	return l.chosen >= 0
}

// holding is the use of the payload that was just packed, for its request. A frame
// that is cut keeps one for its next part, too.
func (c *conn) holding() int32 {
	l, n := c.l, c.cut
	if l.chosen >= 0 {
		n, l.chosen = l.chosen, -1
	}
	c.cut = -1
	if c.out.count > 0 && c.out.next().done > 0 {
		c.cut = n
		l.known.again(n)
	}
	return n
}

// pushStaged posts a message whose bytes are in a slot. Small ones are copied by
// the call, and leave the slot free.
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
	if r.op != opWrite || p.op >= 0 { // no cast
		l.cq.unasked = 0
	}
	r.id = idOf(c.tag, c.sent)
	c.requests[c.sent%sendDepth] = p
	c.sent++
	switch {
	case p.op >= 0 || c.sent%signalEvery == 0:
		r.flags |= flagSignal
		c.waits = false
	case p.slot >= 0 || p.known >= 0:
		c.waits = true
	}
	l.batch.requests = append(l.batch.requests, r)
}

// flush posts the batch. Its last request asks for a completion if memory that one of
// them uses waits for it: a rank's must not stay known until others have sent more.
func (c *conn) flush() {
	l := c.l
	if len(l.batch.requests) == 0 {
		return
	}
	if c.waits {
		l.batch.requests[len(l.batch.requests)-1].flags |= flagSignal
		c.waits = false
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
		// What came before it is done; the one that was refused is known by its
		// status, all others only end.
		c.refuse(number, x.status)
		c.fail(c.statusError("sending", x))
	default:
		c.retire(number, sink)
	}
}

// refuse notes that the peer's device has refused an operation.
func (c *conn) refuse(number, status uint32) {
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

// retire counts requests as done up to number. They end in order.
func (c *conn) retire(number uint32, sink link.Sink) {
	n := (number-c.done)&numberMax + 1
	if n > c.sent-c.done {
		return // not one of ours
	}
	last := c.told
	for upto := c.done + n; c.done != upto && !c.ended; {
		p := c.requests[c.done%sendDepth]
		c.done++
		c.free(&p)
		last = max(last, p.last)
		if p.op >= 0 {
			c.operated(p.op, sink)
		}
	}
	if last > c.told && !c.ended {
		c.told = last
		sink.Delivered(c.peer, last)
	}
	c.goOn()
}

// goOn makes the next Commit look at c if there is something that it may send.
func (c *conn) goOn() {
	if c.out.count > 0 || c.casts.count() > 0 || len(c.words) > 0 || c.ops.turn() >= 0 || c.credit.due() {
		c.later()
	}
}

// arrived takes what came into a slot of c's own, or was kept for it.
func (c *conn) arrived(x *completion, slot int, sink link.Sink) {
	r := c.receives
	if r == nil {
		c.received(x, c.kept[slot], sink)
		c.kept[slot] = nil
		c.credit.repost(1)
		c.goOn()
		return
	}
	if c.open--; !r.has(slot) {
		return
	}
	c.received(x, r.slot(slot), sink)
	if c.ended || c.err != nil {
		return
	}
	posted, err := r.again(int32(slot))
	if err != nil {
		c.fail(fmt.Errorf("%w: %s: %w", link.ErrBroken, c.l.port.Device, err))
		return
	}
	c.open += posted
	c.credit.repost(posted)
	c.goOn()
}

// received takes a message that lies in mem.
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
		notice, ok := c.credit.heardNotice(x.imm)
		if !ok {
			c.fail(errGranted)
			return
		}
		sink.Written(c.peer, uint64(notice))
		return
	}
	l.stats.BytesIn += uint64(x.length)
	if err := c.message(x.imm, mem[:x.length], sink); err != nil {
		c.fail(err)
	}
}

var errGranted = fmt.Errorf("%w: more receives granted than there are, or more messages sent than it was told of", link.ErrProtocol)

func (c *conn) message(imm uint32, b []byte, sink link.Sink) error {
	if !c.credit.heard(imm&creditMask, len(b) > 0) {
		return errGranted
	}
	if imm&noticeBit == 0 {
		return c.in.take(c.peer, b, sink, &c.ended)
	}
	if len(b) != noticeBytes {
		return c.heard(b)
	}
	notify, err := noticeOf(b)
	if err == nil {
		sink.Written(c.peer, notify)
	}
	return err
}
