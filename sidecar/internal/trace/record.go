package trace

import "github.com/outrigger-hpc/outrigger/api/wire"

// Kinds of Events.
const (
	kindNone = iota
	kindCall // of a rank
	kindSent // a frame was passed to its link
	kindCame // a frame has arrived
	kindTurn // the engine had work
)

// Event is a recorded event. Times are the engine's, in nanoseconds.
type Event struct {
	kind              uint8
	Op                uint8 // the shm.Op of a call, or the wire.Type of a frame
	Coll              uint8
	Status            uint8
	Waits             bool
	Local             bool  // the frame stayed in the pod
	Pod               int32 // at the other end
	Rank, Peer        uint32
	Tag, Bytes, Frame uint64
	Since, Until      int64
}

// Recorder keeps the last events of a sidecar, in two rings of fixed size: one of calls and
// frames, one of turns, so that many short turns do not displace the others. The turn
// goroutine owns it. Recording allocates nothing.
type Recorder struct {
	events, turns ring
}

// EventBytes is about the memory that an event takes.
const EventBytes = 64

type ring struct {
	list []Event
	n    uint64 // number of events recorded in total
}

func (r *ring) add(e Event) {
	r.list[r.n%uint64(len(r.list))] = e
	r.n++
}

func (r *ring) lost() uint64 { return r.n - min(r.n, uint64(len(r.list))) }

// extent is the part of a ring that is still to be copied, by number of event.
type extent struct{ next, end uint64 }

// kept returns all events that a ring has.
func (r *ring) kept() extent { return extent{r.lost(), r.n} }

// some copies up to n events to to, oldest first. Events that newer ones have replaced
// meanwhile are lost.
func (r *ring) some(x *extent, to []Event, n int) []Event {
	x.next = min(max(x.next, r.lost()), x.end)
	for x.next < x.end && n > 0 {
		at := x.next % uint64(len(r.list))
		k := min(x.end-x.next, uint64(n), uint64(len(r.list))-at)
		to = append(to, r.list[at:at+k]...)
		x.next += k
		n -= int(k)
	}
	return to
}

// NewRecorder returns a recorder that keeps about that many events of each of the two
// kinds.
func NewRecorder(events int) *Recorder {
	n := max(events, 1)
	return &Recorder{events: newRing(n), turns: newRing(n)}
}

// newRing touches its memory, so that the turns cause no page faults.
func newRing(n int) ring {
	list := make([]Event, n)
	for i := range list {
		list[i].kind = kindNone
	}
	return ring{list: list}
}

func (r *Recorder) call(e Event) {
	e.kind = kindCall
	r.events.add(e)
}

// Sent records a frame that was passed to its link. Frames without data for a rank are not
// recorded.
func (r *Recorder) Sent(now int64, pod int32, local bool, h *wire.Header) {
	r.frame(kindSent, now, pod, local, h)
}

// Came records a frame whose header has arrived. After a broken connection the same frame
// may arrive again.
func (r *Recorder) Came(now int64, pod int32, local bool, h *wire.Header) {
	r.frame(kindCame, now, pod, local, h)
}

func (r *Recorder) frame(kind uint8, now int64, pod int32, local bool, h *wire.Header) {
	if h.Seq == 0 || h.Type == wire.Abort || h.Type == wire.Bye || h.Type == wire.Left {
		return
	}
	r.events.add(Event{
		kind: kind, Op: uint8(h.Type), Local: local, Pod: pod, Rank: h.Src, Peer: h.Dst, Tag: h.Tag, Bytes: uint64(h.Length), Frame: h.Seq,
		Since: now, Until: now,
	})
}

// Turn records a turn that had work to do.
func (r *Recorder) Turn(since, until int64, work int) {
	r.turns.add(Event{kind: kindTurn, Bytes: uint64(work), Since: since, Until: until})
}

// Part is a copy of the events of one sidecar.
type Part struct {
	events []Event
	// Lost is the number of older events.
	Lost uint64
}

// Copying is a copy of a recorder in progress. The turn goroutine makes it in pieces, and
// records between them.
type Copying struct {
	rings   [2]*ring
	extents [2]extent
	part    Part
}

// Copy begins a copy of the events kept now, and returns their number.
func (r *Recorder) Copy() (c *Copying, events int) {
	c = &Copying{rings: [2]*ring{&r.events, &r.turns}}
	for i, x := range c.rings {
		c.extents[i] = x.kept()
		events += int(x.n - x.lost())
	}
	return c, events
}

// Reserve allocates memory, so that Some allocates nothing. It accesses no recorded event,
// so that it may be called from any goroutine.
func (c *Copying) Reserve(events int) { c.part.events = make([]Event, 0, events) }

// Some copies up to n events of each kind, and reports whether there are more.
func (c *Copying) Some(n int) (more bool) {
	c.part.Lost = 0
	for i, x := range c.rings {
		c.part.events = x.some(&c.extents[i], c.part.events, n)
		c.part.Lost += x.lost()
		more = more || c.extents[i].next < c.extents[i].end
	}
	return more
}

// Part returns the copy, after Some has reported that there is no more.
func (c *Copying) Part() *Part { return &c.part }
