package main

import (
	"fmt"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
)

// overlapTurns lists which of the two ranks compute, and the names of the figure.
var overlapTurns = []struct {
	computes [2]bool
	mode     string
	sides    []string
}{
	{[2]bool{true, false}, "one", []string{"isend"}},
	{[2]bool{false, true}, "one", []string{"irecv"}},
	{[2]bool{true, true}, "both", []string{"isend", "irecv"}},
}

// overlaps measures the share of a transfer that overlaps with computing.
func (m *meter) overlaps() error {
	for _, n := range bench.OverlapSizes {
		for _, turn := range overlapTurns {
			f, err := m.overlap(n, turn.computes[m.c.Rank()])
			if err != nil {
				return err
			}
			for _, side := range turn.sides {
				f.Side, f.Mode = side, turn.mode
				if err := m.print(f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (m *meter) overlap(n int, computes bool) (bench.Figure, error) {
	units, err := m.unitsFor(n)
	if err != nil {
		return bench.Figure{}, err
	}
	if !computes {
		units = 0
	}
	var repetitions []bench.Samples
	for range bench.Repetitions {
		var r bench.Samples
		// In turn, so that a drift of the machine's speed affects all three.
		for range m.method.Triples() {
			for _, x := range []struct {
				to      *[]float64
				message bool
				units   int64
			}{{&r.Transfer, true, 0}, {&r.Compute, false, units}, {&r.Total, true, units}} {
				us, err := m.sample(n, x.message, x.units)
				if err != nil {
					return bench.Figure{}, err
				}
				*x.to = append(*x.to, us)
			}
		}
		repetitions = append(repetitions, r)
	}
	return bench.OverlapFigure(n, repetitions), nil
}

// compute does a fixed amount of arithmetic without a call.
func (m *meter) compute(units int64) {
	x := uint64(88172645463325252)
	for range units {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	m.spent ^= x
}

// unitsPerMicrosecond measures the speed of compute. It returns the highest of several
// tries: the speed of an interrupted try would be too low, and the work too short.
func (m *meter) unitsPerMicrosecond() float64 {
	const units = 200_000
	best := 0.0
	for range 20 {
		begin := time.Now()
		m.compute(units)
		best = max(best, units/(time.Since(begin).Seconds()*1e6))
	}
	return best
}

// unitsFor returns the units of work that last one and a half transfers of n bytes, the
// same number on both ranks.
func (m *meter) unitsFor(n int) (int64, error) {
	var transfer []float64
	for range m.method.Triples() {
		us, err := m.sample(n, true, 0)
		if err != nil {
			return 0, err
		}
		transfer = append(transfer, us)
	}
	units := []int64{int64(1.5 * bench.Median(transfer) * m.unitsPerMicrosecond())}
	err := outrigger.Bcast(m.ctx, m.c, units, 0)
	return units[0], err
}

// A start is announced leadFirst ahead. If a rank receives it too late, it is announced
// again with twice the lead, up to leadTries times: up to 0.4 s ahead, above which a
// machine is too busy to measure.
const (
	leadFirst = 200 * time.Microsecond
	leadTries = 12
)

// sample sends a message, or none, while this rank does units of work. It returns the
// microseconds until the later rank has finished, the same on both ranks.
func (m *meter) sample(n int, message bool, units int64) (float64, error) {
	lead := leadFirst
	for range leadTries {
		us, err := m.trySample(n, message, units, lead)
		if err != nil || us >= 0 {
			return us, err
		}
		lead *= 2
	}
	return 0, fmt.Errorf("two ranks could not start within %v of each other; the machine is too busy to measure", lead/2)
}

// trySample takes a sample that starts after lead. The result is negative if the start was
// past when a rank received it.
func (m *meter) trySample(n int, message bool, units int64, lead time.Duration) (float64, error) {
	start := []int64{m.clock.now() + int64(lead)}
	if err := outrigger.Bcast(m.ctx, m.c, start, 0); err != nil {
		return 0, err
	}
	late := m.clock.now() > start[0]
	for m.clock.now() < start[0] {
	}
	var r outrigger.Request
	var err error
	if message && m.first() {
		r, err = outrigger.Isend(m.c, m.out[:n], 1, dataTag)
	} else if message {
		r, err = outrigger.Irecv(m.c, m.in[:n], 0, dataTag)
	}
	if err != nil {
		return 0, err
	}
	m.compute(units)
	if _, err := r.Wait(m.ctx); err != nil {
		return 0, err
	}
	mine, theirs := []float64{float64(m.clock.now()-start[0]) / 1e3}, []float64{0}
	if late {
		mine[0] = -1
	}
	other := 1 - m.c.Rank()
	if _, err := outrigger.Sendrecv(m.ctx, m.c, mine, other, ackTag, theirs, other, ackTag); err != nil {
		return 0, err
	}
	if mine[0] < 0 || theirs[0] < 0 {
		return -1, nil
	}
	return max(mine[0], theirs[0]), nil
}
