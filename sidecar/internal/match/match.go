// Package match pairs messages with receives for one destination rank.
//
// A Queue holds the receives that were posted before their message (patterns) and the
// messages that arrived before their receive (parked; MPI's term is unexpected). It keeps
// MPI's non-overtaking order (MPI 4.1, section 3.5): a message takes the earliest posted
// pattern that it satisfies, and a receive takes the earliest parked message that satisfies
// it.
//
// # Cost
//
// Patterns are sorted into classes. A class is one choice of what a pattern leaves open: a
// mask of ignored tag bits, with or without [AnySource]. Within a class everything that
// counts is known exactly, so it can be hashed, and an operation reads one hashed bin for
// each class in use. A plain MPI program makes at most four classes (tag or any tag, source
// or any source). Programs over a libfabric provider make others: MPICH and Open MPI ignore
// a few protocol bits of the tag in every receive they post, and classes for the masks 0
// and ^0 alone would never serve them.
//
// There are at most eight classes on each side, so Post, Arrive, Park, Take, Peek, Cancel
// and Drop cost O(1) at any depth. Of patterns beyond eight classes that are in use, 64 may
// be posted (Full); every message is compared with each of them, in order of age. No known
// MPI library comes near that. Take and Peek beyond eight classes compare the parked
// messages one by one, and the first one through a new class sorts the messages parked at
// that moment into it, once: their cost is counted (Steps), for a caller that bounds the
// time of each rank.
//
// Nothing is allocated in the steady state. Entries are stored in slabs that grow by
// doubling and keep their high-water mark. A Queue holds at most 2^31-1 patterns and as
// many messages; keeping either within its memory budget is the caller's duty, which
// refuses the message or the receive before it reaches the Queue.
package match

// AnySource as the Source of a Pattern accepts every sender.
const AnySource = ^uint32(0)

// Envelope is the part of a message that is matched.
type Envelope struct {
	Context uint32 // communicator
	Source  uint32 // sending rank; AnySource has no special meaning here
	Tag     uint64
}

// Pattern is the part of a receive that is matched.
type Pattern struct {
	Context uint32
	Source  uint32 // AnySource, or the only rank whose messages are accepted
	Tag     uint64
	// Ignore has a one for every bit of Tag that does not count, as in
	// libfabric's fi_tagged(3): 0 is an exact tag, ^uint64(0) is any tag.
	Ignore uint64
}

// Matches reports whether a message with envelope e satisfies the pattern.
func (p Pattern) Matches(e Envelope) bool {
	return p.Context == e.Context &&
		(p.Source == AnySource || p.Source == e.Source) &&
		(p.Tag^e.Tag)&^p.Ignore == 0
}

// Ref identifies one entry of a Queue until that entry is removed, after which it is
// refused. A Ref of Post is refused by Drop, and a Ref of Park by Cancel. The zero Ref
// identifies nothing.
type Ref struct {
	index, generation uint32
}

// Queue is the posted and the unexpected queue of one destination rank. It is not safe for
// concurrent use; the turn goroutine of the rank's engine owns it.
type Queue struct {
	posted   side
	parked   side
	overflow overflow // posted patterns without a class
	steps    uint64   // steps linear in the parked messages, since the last call of Steps
}

// defaultSeed is the hash seed of New: the fraction of the golden ratio.
const defaultSeed = 0x9e3779b97f4a7c15

// New returns an empty Queue whose hash is not secret. It is for tests and for trusted
// peers; for other peers, use NewSeeded.
func New() *Queue { return NewSeeded(defaultSeed) }

// NewSeeded returns an empty Queue whose hash depends on seed. With a seed that senders
// cannot know, they cannot choose tags that share a bin.
func NewSeeded(seed uint64) *Queue {
	q := new(Queue)
	s := newSeeds(seed)
	// Generations of posted entries are odd and those of parked ones even, so
	// that a Ref cannot be used on the wrong side.
	q.posted.init(s, 1)
	q.parked.init(s, 2)
	q.overflow.list = emptyList
	return q
}

// Steps returns how many parked messages were compared one by one since the last call: what
// Take and Peek have cost beyond O(1).
func (q *Queue) Steps() (n uint64) {
	n, q.steps = q.steps, 0
	return n
}

// Posted returns the number of posted patterns.
func (q *Queue) Posted() int { return q.posted.live }

// Parked returns the number of parked messages.
func (q *Queue) Parked() int { return q.parked.live }
