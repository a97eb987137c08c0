package main

import (
	"slices"

	"golang.org/x/sys/unix"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// triples is how many samples of each kind make a repetition.
const triples = 50

// clock is CLOCK_MONOTONIC in nanoseconds: the ranks are on one machine.
func clock() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // the clock exists
	return ts.Nano()
}

// compute is a fixed amount of arithmetic that makes no call. Its result is kept
// so that it is not optimised away.
func (m *meter) compute(steps int) {
	x := uint64(steps) | 1
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	m.spent ^= x
}

// overlaps measures how much of a transfer hides behind computing.
func (m *meter) overlaps() error {
	for _, n := range []int{64 << 10, 1 << 20} {
		for _, mode := range []struct {
			name  string
			sides []string
			works [2]bool
		}{{"one", []string{"isend"}, [2]bool{true, false}}, {"one", []string{"irecv"}, [2]bool{false, true}}, {"both", []string{"isend", "irecv"}, [2]bool{true, true}}} {
			f, err := m.overlap(n, mode.works)
			if err != nil {
				return err
			}
			for _, side := range mode.sides {
				f.Side, f.Mode = side, mode.name
				if err := m.print(*f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (m *meter) overlap(n int, works [2]bool) (*figure, error) {
	steps, err := m.size(n)
	if err != nil {
		return nil, err
	}
	mine := 0
	if works[m.c.Rank()] {
		mine = steps
	}
	var all [][4]float64
	for range repetitions {
		var transfer, alone, total []float64
		for range m.scale(triples) {
			for _, x := range []struct {
				to      *[]float64
				message bool
				steps   int
			}{{&transfer, true, 0}, {&alone, false, mine}, {&total, true, mine}} {
				us, err := m.sample(n, x.message, x.steps)
				if err != nil {
					return nil, err
				}
				*x.to = append(*x.to, us)
			}
		}
		t, c, b := middle(transfer), middle(alone), middle(total)
		all = append(all, [4]float64{1 - (b-c)/t, t, c, b})
	}
	slices.SortFunc(all, func(a, b [4]float64) int {
		switch {
		case a[0] < b[0]:
			return -1
		case a[0] > b[0]:
			return 1
		}
		return 0
	})
	r := all[repetitions/2]
	return &figure{Test: "overlap", Bytes: n, Overlap: &r[0], TransferUS: r[1], ComputeUS: r[2], TotalUS: r[3]}, nil
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// size finds how many steps last one and a half transfers; both ranks use
// rank 0's answer.
func (m *meter) size(n int) (int, error) {
	var t []float64
	for range m.scale(triples) {
		us, err := m.sample(n, true, 0)
		if err != nil {
			return 0, err
		}
		t = append(t, us)
	}
	const probe = 1 << 20
	m.compute(probe)
	begin := clock()
	m.compute(probe)
	perStep := float64(clock()-begin) / 1e3 / probe
	steps := []int64{int64(1.5 * middle(t) / perStep)}
	err := outrigger.Bcast(m.ctx, m.c, steps, 0)
	return int(steps[0]), err
}

// sample is one message, or none, with computing on this rank, or none, until
// the later of the two ranks is done.
func (m *meter) sample(n int, message bool, steps int) (float64, error) {
	start := []int64{0}
	if m.first() {
		start[0] = clock() + 200_000
	}
	if err := outrigger.Bcast(m.ctx, m.c, start, 0); err != nil {
		return 0, err
	}
	for clock() < start[0] {
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
	m.compute(steps)
	if _, err := r.Wait(m.ctx); err != nil {
		return 0, err
	}
	end := []int64{clock()}
	if err := outrigger.Allreduce(m.ctx, m.c, end, end, outrigger.Max); err != nil {
		return 0, err
	}
	return float64(end[0]-start[0]) / 1e3, nil
}
