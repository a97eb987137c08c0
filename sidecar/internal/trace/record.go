package trace

import "github.com/outrigger-hpc/outrigger/api/wire"

// What an Event is.
const (
	kindCall = 1 + iota // of a rank
	kindSent            // a frame was given to its link
	kindCame            // a frame has come
	kindTurn            // the engine worked
)

// Event is something that happened. Times are the engine's, in nanoseconds.
type Event struct {
	kind              uint8
	Op                uint8 // of a call: shm.Op; of a frame: wire.Type
	Coll              uint8
	Status            uint8
	Waits             bool
	Local             bool  // the frame stayed in the pod
	Pod               int32 // at the other end
	Rank, Peer        uint32
	Tag, Bytes, Frame uint64
	Since, Until      int64
}

// Recorder keeps the last events of a sidecar, in two rings of fixed size: one of
// calls and frames, one of turns, so that many short turns do not push the others
// out. The turn of the engine owns it. Recording allocates nothing.
type Recorder struct {
	events, turns ring
}

// EventBytes is about what an event takes of a sidecar's memory.
const EventBytes = 64

type ring struct {
	list []Event
	n    uint64 // ever recorded
}

func (r *ring) add(e Event) {
	r.list[r.n%uint64(len(r.list))] = e
	r.n++
}

func (r *ring) lost() uint64 { return r.n - min(r.n, uint64(len(r.list))) }

// all is a copy of what is kept, oldest first.
func (r *ring) all() []Event {
	if r.n <= uint64(len(r.list)) {
		return append([]Event(nil), r.list[:r.n]...)
	}
	at := r.n % uint64(len(r.list))
	return append(append(make([]Event, 0, len(r.list)), r.list[at:]...), r.list[:at]...)
}

// NewRecorder keeps about so many events of each of the two kinds.
func NewRecorder(events int) *Recorder {
	n := max(events, 1)
	return &Recorder{events: ring{list: make([]Event, n)}, turns: ring{list: make([]Event, n)}}
}

func (r *Recorder) call(e Event) {
	e.kind = kindCall
	r.events.add(e)
}

// Sent notes a frame that was given to its link. Frames that carry nothing for a
// rank are not noted.
func (r *Recorder) Sent(now int64, pod int32, local bool, h *wire.Header) {
	r.frame(kindSent, now, pod, local, h)
}

// Came notes a frame whose head has come. After a broken connection the same may
// come again.
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

// Turn notes a turn that had work to do.
func (r *Recorder) Turn(since, until int64, work int) {
	r.turns.add(Event{kind: kindTurn, Bytes: uint64(work), Since: since, Until: until})
}

// Part is a copy of what one sidecar has recorded.
type Part struct {
	events []Event
	// Lost is how many older events there were.
	Lost uint64
}

// Part copies the recorder.
func (r *Recorder) Part() *Part {
	return &Part{events: append(r.events.all(), r.turns.all()...), Lost: r.events.lost() + r.turns.lost()}
}
