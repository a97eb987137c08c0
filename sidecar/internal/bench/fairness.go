package bench

import (
	"slices"
	"time"
)

// Loads of a fairness test, in the order in which it runs: the work of other ranks of the pods
// while two ranks exchange small messages. The first load is nothing, to compare with.
const (
	LoadNone      = "nothing"
	LoadSend      = "send"
	LoadPut       = "put"
	LoadGet       = "get"
	LoadReduction = "reduction"
	LoadSlowPeer  = "slow peer"
)

// Loads returns the loads. slow says whether there is a further peer, which can be the slow
// one.
func Loads(slow bool) []string {
	all := []string{LoadNone, LoadSend, LoadPut, LoadGet, LoadReduction}
	if slow {
		all = append(all, LoadSlowPeer)
	}
	return all
}

// Sizes and duration of a fairness test.
const (
	FairnessBytes  = 512 * mib // size of a message, put or get; a reduction combines half as much
	FairnessArena  = 832 * mib // size of each rank's arena
	fairnessSample = 3 * time.Second
)

// FairnessBytes returns the size of each transfer of the load: a 64th with Quick.
func (m Method) FairnessBytes() int {
	if m.Quick {
		return FairnessBytes / 64
	}
	return FairnessBytes
}

// FairnessArena returns the arena that ranks need for a load.
func (m Method) FairnessArena() int { return FairnessArena / (FairnessBytes / m.FairnessBytes()) }

// FairnessSample returns how long round trips are measured under each load.
func (m Method) FairnessSample() time.Duration {
	if m.Quick {
		return fairnessSample / quickPart
	}
	return fairnessSample
}

// Percentile returns the value that the fraction p of the samples does not exceed.
// v is sorted and not empty.
func Percentile(v []float64, p float64) float64 {
	return v[min(int(p*float64(len(v))), len(v)-1)]
}

// FairnessFigure returns the figure of round trips under a load. trips are in microseconds,
// and are sorted in place.
func FairnessFigure(load string, bytes int, trips []float64) Figure {
	slices.Sort(trips)
	return Figure{
		Test: Fairness, Op: load, Bytes: bytes, Trips: len(trips),
		P50: Percentile(trips, 0.5), P999: Percentile(trips, 0.999), MaxUS: trips[len(trips)-1],
	}
}

// Quiet returns the 99.9th percentile without a load, or 0 if it was not measured.
func Quiet(all []Figure) float64 {
	for _, f := range all {
		if f.Test == Fairness && f.Op == LoadNone {
			return f.P999
		}
	}
	return 0
}
