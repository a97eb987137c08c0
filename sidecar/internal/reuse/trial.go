package reuse

import "slices"

// A send without the core's copy completes when its bytes have arrived, which is later.
// What that costs does not depend on the link: nothing if the rank waits for the answer
// anyway (the papers' ping-pong), or polls for the completion later; a time slice if it
// does nothing else before and shares its CPU with its sidecar. It cannot be computed from
// parts that were measured separately either. So it is tried: the uses of a size alternate,
// a block copied and a block gathered, and the measure is the time from one use to the
// next, with everything that the application does in between. Gathering has to win clearly;
// otherwise the sends are copied, as if there were no choice.
//
//	uses    |copied|gathered|copied|gathered| …  up to trialPairs pairs
//	              first use of each block only begins its clock
//	verdict  gathers, if it was faster in all pairs but trialLost
//	         copies, at the pair in which that has become impossible
//	         holds for restFirst uses, twice as many each time that it is the same
//
// A pair in which gathering loses a tenth costs that of blockUses uses; two are lost before
// the trial ends, so that the first restFirst uses lose less than 1 in 1,000.
const (
	blockUses  = 16
	trialPairs = 8
	trialLost  = 1
	restFirst  = 4 << 10
	restMost   = 256 << 10
)

// Trials are the trials of the sizes of each session. The owner of the table owns them.
type Trials struct{ list [][classCount]trial }

// NewTrials returns trials for a number of sessions.
func NewTrials(sessions int) *Trials { return &Trials{make([][classCount]trial, sessions)} }

// Forget resets the trials of a session whose number another rank has.
func (t *Trials) Forget(s Session) { t.list[s] = [classCount]trial{} }

// Decided returns how sends of a size go while a verdict holds, and counts one send.
// decided is false while they are tried.
func (t *Trials) Decided(s Session, bytes uint64) (gathers, decided bool) {
	x := &t.list[s][class(bytes)]
	if x.rest == 0 {
		return false, false
	}
	x.rest--
	return x.gathers, true
}

// Try reports whether a send that is not Decided, from a buffer that can be gathered from,
// is gathered. now is the time in nanoseconds.
func (t *Trials) Try(s Session, bytes uint64, now int64) bool {
	return t.list[s][class(bytes)].use(now)
}

// trial is the trial of one size class of one session.
type trial struct {
	rest    int // uses for which the verdict still holds; 0: a trial is in progress
	pause   int // length of the last rest
	gathers bool

	begun  bool // the block's clock runs
	last   int64
	times  [blockUses]int64
	n      int
	second bool  // the present block is gathered
	copied int64 // median of the pair's first block
	won    int
	lost   int
}

// use counts a use, and reports whether it is gathered.
func (x *trial) use(now int64) bool {
	if x.begun {
		x.times[x.n] = now - x.last
		x.n++
	}
	x.begun, x.last = true, now
	if x.n == blockUses {
		x.endBlock()
		if x.rest > 0 {
			return x.gathers
		}
	}
	return x.second
}

// endBlock compares the blocks of a pair after the second one.
func (x *trial) endBlock() {
	slices.Sort(x.times[:])
	median := x.times[blockUses/2]
	x.n, x.begun = 0, false // the use that ended the block was of the other kind
	if x.second = !x.second; x.second {
		x.copied = median
		return
	}
	if median < x.copied {
		x.won++
	} else {
		x.lost++
	}
	switch {
	case x.lost > trialLost:
		x.judge(false)
	case x.won+x.lost == trialPairs:
		x.judge(true)
	}
}

// judge ends a trial with a verdict.
func (x *trial) judge(gathers bool) {
	if x.pause == 0 || gathers != x.gathers {
		x.pause = restFirst
	} else {
		x.pause = min(2*x.pause, restMost)
	}
	x.gathers, x.rest, x.won, x.lost = gathers, x.pause, 0, 0
}
