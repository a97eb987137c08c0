// Package match pairs messages with receives for one destination rank.
//
// A Queue holds the receives that were posted before their message (patterns)
// and the messages that arrived before their receive (parked, in MPI's words
// unexpected). It keeps MPI's non-overtaking order (MPI 4.1, section 3.5): a
// message takes the earliest posted pattern that it satisfies, and a receive
// takes the earliest parked message that satisfies it.
//
// # Cost
//
// Patterns are sorted into lanes. A lane is one choice of what a pattern
// leaves open: a mask of ignored tag bits, with or without [AnySource]. Within
// a lane everything that counts is known exactly, so it can be hashed, and an
// operation looks at one hashed bin per lane in use. A plain MPI program makes
// at most four lanes (tag or any tag, source or any source). Programs over a
// libfabric provider make others: MPICH and Open MPI ignore a few protocol
// bits of the tag in every receive they post, and would never be served by
// lanes for the masks 0 and ^0 alone.
//
// There are at most eight lanes on each side, so Post, Arrive, Park, Take,
// Peek, Cancel and Drop cost O(1) at any depth. Of patterns beyond eight lanes
// that are really in use, 64 may be posted (Full); every message is held against
// each of them, in order of age. No known MPI library comes near that. Take and
// Peek beyond eight lanes look at what is parked one by one, and the first one
// through a new lane sorts the messages parked at that moment into it, once: what
// they cost is counted (Steps), for a caller who gives each rank its time.
//
// Nothing is allocated in the steady state. Entries live in slabs that grow
// by doubling and keep their high-water mark. A Queue holds at most 2^31-1
// patterns and as many messages; keeping either within its memory budget is
// the caller's duty, who refuses the message or the receive before it gets
// here.
package match

// AnySource as the Source of a Pattern accepts every sender.
const AnySource = ^uint32(0)

// Envelope is what a message says about itself.
type Envelope struct {
	Context uint32 // communicator
	Source  uint32 // sending rank; AnySource has no special meaning here
	Tag     uint64
}

// Pattern is what a receive accepts.
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

// Ref names one entry of a Queue until that entry is removed, after which it
// is refused. A Ref of Post is refused by Drop, and a Ref of Park by Cancel.
// The zero Ref names nothing.
type Ref struct {
	index, generation uint32
}

// Queue is the posted and the unexpected queue of one destination rank. It is
// not safe for concurrent use; the turn that owns the rank owns it.
type Queue struct {
	posted   shelf
	parked   shelf
	overflow overflow // posted patterns that found no lane
	steps    uint64   // that were linear in what is parked, since they were asked for
}

// defaultSeed is the hash seed of New: the fraction of the golden ratio.
const defaultSeed = 0x9e3779b97f4a7c15

// New returns an empty Queue whose hash is not secret. It is for tests and
// for peers that are trusted; others are served by NewSeeded.
func New() *Queue { return NewSeeded(defaultSeed) }

// NewSeeded returns an empty Queue whose hash depends on seed. With a seed
// that senders cannot know, they cannot choose tags that share a bin.
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

// Steps is how many parked messages were looked at one by one since it was last
// asked for: what Take and Peek have cost beyond O(1).
func (q *Queue) Steps() (n uint64) {
	n, q.steps = q.steps, 0
	return n
}

// Posted returns the number of posted patterns.
func (q *Queue) Posted() int { return q.posted.live }

// Parked returns the number of parked messages.
func (q *Queue) Parked() int { return q.parked.live }
