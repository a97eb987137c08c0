package channel

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Outbox keeps the frames to one peer from emission to acknowledgement: those up to base are
// acknowledged, up to next posted, and up to last queued (P§3.2). A broken connection moves next back
// to Kept. The outbox grows with the frames that are not acknowledged; the requests in the tables
// bound these.
type Outbox struct {
	frames   []*link.Frame // ring of a power of two; index = sequence number & mask
	releases []Release     // release of the frame with the same index
	base     uint64        // frames up to and including this number are acknowledged
	came     uint64        // if it is more than base: frames up to this number are confirmed by the link, and are never sent again
	next     uint64        // frames up to and including this number are posted
	most     uint64        // if it is more than next: frames up to this number were posted on an earlier connection, or before a write failed
	last     uint64        // frames up to and including this number are queued
	queued   uint64        // payload bytes not yet posted
}

// Release is what the user of the channel does when a frame has arrived or is acknowledged. Until
// then the memory of the frame is in use.
type Release struct {
	Kind    ReleaseKind
	Session ranks.SessionID
	Hold    bool // the frame holds the session's memory
	ID      uint64
}

// ReleaseKind is a kind of the user, from ReleaseUser on.
type ReleaseKind uint8

const (
	ReleaseNothing ReleaseKind = 0
	ReleaseUser    ReleaseKind = 1
	// ReleaseTaken is set in kinds that wait until the peer has handled the frame. For other kinds it
	// is enough that the frame has come.
	ReleaseTaken ReleaseKind = 1 << 7

	releaseAnswer = ReleaseTaken // Room.Answer
)

// Any reports whether there is something to do.
func (r *Release) Any() bool { return r.Kind != ReleaseNothing || r.Hold }

// Init makes an empty outbox.
func (o *Outbox) Init() {
	o.frames = make([]*link.Frame, 8)
	o.releases = make([]Release, 8)
}

// Push returns the next frame to fill and its release.
func (o *Outbox) Push() (*link.Frame, *Release) {
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
	o.releases[i] = Release{}
	return f, &o.releases[i]
}

func (o *Outbox) grow() {
	n := uint64(len(o.frames))
	frames, releases := make([]*link.Frame, 2*n), make([]Release, 2*n)
	for s := o.base + 1; s <= o.last; s++ {
		frames[s&(2*n-1)], releases[s&(2*n-1)] = o.frames[s&(n-1)], o.releases[s&(n-1)]
	}
	o.frames, o.releases = frames, releases
}

// Charge counts payload bytes of the frame last pushed.
func (o *Outbox) Charge(bytes uint64) { o.queued += bytes }

// outboxKeep is the number of frames to which an outbox shrinks.
const outboxKeep = 256

// Large reports whether there is room for more frames than that.
func (o *Outbox) Large() bool { return len(o.frames) > outboxKeep }

// Shrink gives memory back if all frames are acknowledged.
func (o *Outbox) Shrink() {
	if o.Empty() && o.Large() {
		o.frames, o.releases = make([]*link.Frame, outboxKeep), make([]Release, outboxKeep)
	}
}

// Base returns the number of the last frame that is acknowledged.
func (o *Outbox) Base() uint64 { return o.base }

// Next returns the number of the last frame that is posted.
func (o *Outbox) Next() uint64 { return o.next }

// Last returns the number of the last frame that is queued.
func (o *Outbox) Last() uint64 { return o.last }

// Came returns the number up to which the link has confirmed frames.
func (o *Outbox) Came() uint64 { return o.came }

// Queued returns how many payload bytes the link has not taken.
func (o *Outbox) Queued() uint64 { return o.queued }

// Empty reports whether all frames are acknowledged.
func (o *Outbox) Empty() bool { return o.base == o.last }

// At returns the frame with a number. Preconditions: it is queued and not acknowledged, or the last
// one that was acknowledged.
func (o *Outbox) At(seq uint64) *link.Frame { return o.frames[seq&uint64(len(o.frames)-1)] }

// ReleaseAt returns the release of a frame. Preconditions: it is queued and not acknowledged.
func (o *Outbox) ReleaseAt(seq uint64) Release { return o.releases[seq&uint64(len(o.frames)-1)] }

// Unposted returns the first run of frames that the link has not taken.
func (o *Outbox) Unposted() []*link.Frame {
	n := uint64(len(o.frames))
	i := (o.next + 1) & (n - 1)
	return o.frames[i:min(n, i+o.last-o.next)]
}

// UnpostedFrames returns how many frames the link has not taken.
func (o *Outbox) UnpostedFrames() uint64 { return o.last - o.next }

// Posted counts the first of them as posted.
func (o *Outbox) Posted(f *link.Frame) {
	o.queued -= f.Payload.Len
	o.next++
}

// Skip counts frames up to a number as posted without posting them: they have arrived, or the peer is
// dead.
func (o *Outbox) Skip(seq uint64) { o.next = seq }

// Kept returns the number before the first frame that may have to be sent again.
func (o *Outbox) Kept() uint64 { return max(o.base, o.came) }

// Was reports whether a frame was posted, maybe on an earlier connection.
func (o *Outbox) Was(seq uint64) bool { return seq <= o.next || seq <= o.most }

// Never returns the error of an acknowledgement of a frame that was not posted.
func (o *Outbox) Never(seq uint64) error {
	return fmt.Errorf("%w: acknowledges frame %d of %d posted", link.ErrProtocol, seq, max(o.next, o.most))
}

// Acknowledge removes the oldest frame, and returns it with its release: both are valid until the
// next Push. Preconditions: the outbox is not empty.
func (o *Outbox) Acknowledge() (*link.Frame, *Release) {
	o.base++
	i := o.base & uint64(len(o.frames)-1)
	return o.frames[i], &o.releases[i]
}

// Confirm notes that the link has confirmed frames up to a number.
func (o *Outbox) Confirm(seq uint64) { o.came = seq }

// Deliver removes and returns the release of a frame that has come, unless the release waits for the
// peer.
func (o *Outbox) Deliver(seq uint64) (r Release, ok bool) {
	i := seq & uint64(len(o.frames)-1)
	if r = o.releases[i]; r.Kind&ReleaseTaken != 0 || !r.Any() {
		return Release{}, false
	}
	o.releases[i] = Release{}
	return r, true
}

// Rewind makes the first frame that may not have come the next one to post.
func (o *Outbox) Rewind() {
	o.most = max(o.most, o.next)
	o.next, o.queued = o.Kept(), 0
	for s := o.next + 1; s <= o.last; s++ {
		o.queued += o.At(s).Payload.Len
	}
}

// Restart makes seq the last number that was used. Preconditions: the outbox is empty.
func (o *Outbox) Restart(seq uint64) {
	o.base, o.came, o.next, o.most, o.last, o.queued = seq, seq, seq, seq, seq, 0
}
