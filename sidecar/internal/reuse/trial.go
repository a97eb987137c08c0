package reuse

import "slices"

// A send without the core's copy ends when its bytes have come, which is later. What
// that costs is no matter of the link: nothing where the rank waits for the answer
// anyway (the papers' ping-pong), or looks at the end of the send later; a time slice
// where it does nothing else before, and shares its processor with its sidecar. Nor can
// it be added up from parts that were measured alone. So it is tried: the uses of a size
// go by turns, a block copied and a block gathered, and what counts is the time from one
// use to the next, with all that the application does between. Gathering has to win
// clearly; while it has not, the sends are copied, as if there was no choice.
//
//	uses    |copied|gathered|copied|gathered| …  up to trialPairs pairs
//	              first use of each block only begins its clock
//	verdict  gathers, when it was faster in all pairs but trialLost
//	         copies, at the pair in which that has become impossible
//	         holds for restFirst uses, twice as many each time that it is the same
//
// A pair in which gathering loses a tenth costs that of blockUses uses; two are lost
// before it is left, so that the first restFirst uses lose less than 1 in 1,000.
const (
	blockUses  = 16
	trialPairs = 8
	trialLost  = 1
	restFirst  = 4 << 10
	restMost   = 256 << 10
)

// Trials are those of the sizes of each session. They are owned by who owns the table.
type Trials struct{ list [][classCount]trial }

// NewTrials makes them for so many sessions.
func NewTrials(sessions int) *Trials { return &Trials{make([][classCount]trial, sessions)} }

// Forget begins anew for a session's number that another rank has.
func (t *Trials) Forget(s Session) { t.list[s] = [classCount]trial{} }

// Decided reports how sends of so many bytes go while a verdict holds, and counts one;
// decided is false while they are tried.
func (t *Trials) Decided(s Session, bytes uint64) (gathers, decided bool) {
	x := &t.list[s][class(bytes)]
	if x.rest == 0 {
		return false, false
	}
	x.rest--
	return x.gathers, true
}

// Try reports whether a send of so many bytes that is not Decided, from a buffer that
// can be gathered from, is gathered. now is the time in nanoseconds.
func (t *Trials) Try(s Session, bytes uint64, now int64) bool {
	return t.list[s][class(bytes)].use(now)
}

// trial is that of one size class of one session.
type trial struct {
	rest    int // uses for which the verdict still holds; 0: a trial is under way
	pause   int // the last rest
	gathers bool

	begun  bool // the block's clock
	last   int64
	times  [blockUses]int64
	n      int
	second bool  // the block that is gathered
	copied int64 // median of the pair's first
	won    int
	lost   int
}

// use counts one, and says how it goes.
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

// endBlock compares the blocks of a pair.
func (x *trial) endBlock() {
	slices.Sort(x.times[:])
	median := x.times[blockUses/2]
	x.n, x.begun = 0, false // the use that ended it was of the other way
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

// judge ends a trial.
func (x *trial) judge(gathers bool) {
	if x.pause == 0 || gathers != x.gathers {
		x.pause = restFirst
	} else {
		x.pause = min(2*x.pause, restMost)
	}
	x.gathers, x.rest, x.won, x.lost = gathers, x.pause, 0, 0
}
