package channel

import (
	"math/bits"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence"
)

// visits are the rings that each PollRings visits: those of peers that a frame came from, or went to,
// lately. All others are silent. They share one visit every silence.LookInterval, and one before a
// sleep, so that they cost a turn nothing. If a peer notifies a write, its ring is visited in the same
// turn.
//
// Sets of lanes are bits, so that rings are always visited in the order of their lanes.
type visits struct {
	lanes  int
	each   []uint64 // lanes that are visited each time
	used   []uint64 // lanes with a frame since the last sort
	silent int      // lanes that are not in each
	looked bool     // the last PollRings has visited all lanes
	clock  silence.Clock
}

// add adds the next lane.
func (v *visits) add() {
	if v.lanes%64 == 0 {
		v.each, v.used = append(v.each, 0), append(v.used, 0)
	}
	v.silent++
	v.use(v.lanes)
	v.lanes++
}

// use makes each PollRings visit a lane until it is silent. A peer without a ring has a negative one.
func (v *visits) use(lane int) {
	if lane < 0 {
		return
	}
	at, bit := lane/64, uint64(1)<<(lane%64)
	if v.each[at]&bit == 0 {
		v.each[at] |= bit
		v.silent--
	}
	v.used[at] |= bit
}

// begin begins a PollRings: it decides whether it visits the silent lanes, too.
func (v *visits) begin(now int64) { v.looked = v.silent == 0 || v.clock.MayLook(now) }

// word returns the lanes to visit among the 64 from 64*i on.
func (v *visits) word(i int) uint64 {
	if !v.looked {
		return v.each[i]
	}
	return 1<<min(v.lanes-64*i, 64) - 1
}

// end ends a PollRings: lanes without a frame since the last sort become silent, if it is time.
func (v *visits) end(now int64) {
	if v.lanes == 0 || !v.clock.IsOver(1, now) {
		return
	}
	v.silent = v.lanes
	for i := range v.each {
		v.each[i], v.used[i] = v.used[i], 0
		v.silent -= bits.OnesCount64(v.each[i])
	}
}

// mustLook reports whether silent lanes have to be visited before a sleep. The next PollRings does it.
func (v *visits) mustLook() bool {
	if v.silent == 0 || v.looked {
		return false
	}
	v.clock.LookNow()
	return true
}
