package core

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// outbox keeps the frames to one peer from emission to acknowledgement: acked
// up to base, posted up to next, queued up to the end (P§3.2). A broken
// connection only moves next back to kept. It grows with what is in flight and
// is bounded by what the requests in the tables can have outstanding.
type outbox struct {
	frames []*link.Frame // ring of a power of two; index = sequence number & mask
	after  []after       // what acknowledgement of the frame of the same index brings about
	base   uint64        // frames up to and including this number are acknowledged
	came   uint64        // up to this number, if it is more, the link has told that they have come: they are never sent again
	next   uint64        // frames up to and including this number are posted
	most   uint64        // or were, if it is more, on a connection that is lost or on which a write has failed
	last   uint64        // frames up to and including this number are queued
	queued uint64        // payload bytes not yet posted
}

// after says what to do when a frame is acknowledged: its memory belongs to
// somebody until then.
type after struct {
	kind    afterKind
	session SessionID
	hold    bool // session's memory is referred to
	id      uint64
}

type afterKind uint8

const (
	afterNothing  afterKind = iota
	afterComplete           // OpDone for request id
	afterCopy               // give the eager copy back to the pool
	afterChunk              // staged chunk of send id is off: OpStaged, maybe OpDone
	afterOrigin             // one-sided operation id has reached its target
	afterGot                // a get of the peer is answered
	afterAnswer             // the peer has an answer
	afterColl               // a step of collective id is done
)

func (o *outbox) init() {
	o.frames = make([]*link.Frame, 8)
	o.after = make([]after, 8)
}

// push returns the next frame to fill and its after record.
func (o *outbox) push() (*link.Frame, *after) {
	if o.last-o.base == uint64(len(o.frames)) {
		o.grow()
	}
	o.last++
	i := o.last & uint64(len(o.frames)-1)
	if o.frames[i] == nil {
		o.frames[i] = new(link.Frame)
	}
	f := o.frames[i]
	f.Payload = link.Ref{}
	o.after[i] = after{}
	return f, &o.after[i]
}

func (o *outbox) grow() {
	n := uint64(len(o.frames))
	frames, acts := make([]*link.Frame, 2*n), make([]after, 2*n)
	for s := o.base + 1; s <= o.last; s++ {
		frames[s&(2*n-1)], acts[s&(2*n-1)] = o.frames[s&(n-1)], o.after[s&(n-1)]
	}
	o.frames, o.after = frames, acts
}

// outboxKeep is how many frames an outbox has room for when nothing was sent for a
// while, however many it was before.
const outboxKeep = 256

// large reports that there is something to shrink, now or later.
func (o *outbox) large() bool { return len(o.frames) > outboxKeep }

// shrink gives back the memory of a burst that is over.
func (o *outbox) shrink() {
	if o.empty() && o.large() {
		o.frames, o.after = make([]*link.Frame, outboxKeep), make([]after, outboxKeep)
	}
}

// unposted is the first run of frames that the link has not taken.
func (o *outbox) unposted() []*link.Frame {
	n := uint64(len(o.frames))
	i := (o.next + 1) & (n - 1)
	return o.frames[i:min(n, i+o.last-o.next)]
}

// unpostedFrames is how many frames the link has not taken.
func (o *outbox) unpostedFrames() uint64 { return o.last - o.next }

// kept is the number before the first frame that may have to be sent again.
func (o *outbox) kept() uint64 { return max(o.base, o.came) }

// rewind makes the next frame to post the first one that may not have come.
func (o *outbox) rewind() {
	o.most = max(o.most, o.next)
	o.next, o.queued = o.kept(), 0
	for s := o.next + 1; s <= o.last; s++ {
		o.queued += o.frames[s&uint64(len(o.frames)-1)].Payload.Len
	}
}

// restart makes seq the last number used. Preconditions: it is empty.
func (o *outbox) restart(seq uint64) {
	o.base, o.came, o.next, o.most, o.last, o.queued = seq, seq, seq, seq, seq, 0
}

func (o *outbox) empty() bool { return o.base == o.last }
