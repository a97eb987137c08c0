// Package is is the NAS Parallel Benchmark IS: it computes the ranks of a large
// number of small integer keys, ten times, with a few keys changed in between
// (RNR-94-007 chapter 2, "Kernel IS"; the message form, a bucket sort, is that of
// NAS-95-020 and NPB 3.x).
//
// It tests integer speed and, between ranks, a reduction of bucket sizes and a
// redistribution of all keys (alltoall, alltoallv) in each iteration.
package is

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// Run executes class on all ranks of comm, any number up to one for each bucket
// (otherwise bench.ErrRanks), and returns the same result on each. A failed
// verification is a result, not an error. Progress may be nil.
func Run(ctx context.Context, comm *outrigger.Comm, class bench.Class, progress bench.Progress) (bench.Result, error) {
	return bench.Execute(comm, "is", problems, class, func(arena *bench.Arena, p problem) (bench.Result, error) {
		if comm.Size() > p.buckets() {
			return bench.Result{}, fmt.Errorf("%w: got %d, class %s has work for at most %d", bench.ErrRanks, comm.Size(), class, p.buckets())
		}
		return run(ctx, comm, arena, p, progress.OnRoot(comm))
	})
}

func run(ctx context.Context, comm *outrigger.Comm, arena *bench.Arena, p problem, progress bench.Progress) (result bench.Result, err error) {
	result = bench.Result{
		Benchmark: "IS", Size: strconv.Itoa(p.keys()), Iterations: iterations,
		Ranks: comm.Size(), Operation: "keys ranked",
	}
	clock, err := bench.NewClock(comm, arena)
	if err != nil {
		return result, err
	}
	s, err := newSorter(p, comm, arena)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, s.inbox.Release()) }()

	// One untimed iteration touches all code and memory.
	if _, err := s.rank(ctx, 1); err != nil {
		return result, err
	}
	if err := clock.Start(ctx); err != nil {
		return result, err
	}
	passed, err := s.iterate(ctx, progress)
	if err != nil {
		return result, err
	}
	seconds, err := clock.Stop(ctx)
	if err != nil {
		return result, err
	}
	result.Timing(float64(iterations)*float64(p.keys()), seconds)
	return result, s.verify(ctx, arena, passed, &result)
}

// iterate runs the timed iterations and returns this rank's passed probes.
func (s *sorter) iterate(ctx context.Context, progress bench.Progress) (passed int, err error) {
	for i := 1; i <= iterations; i++ {
		n, err := s.rank(ctx, i)
		if err != nil {
			return 0, fmt.Errorf("iteration %d: %w", i, err)
		}
		passed += n
		if progress != nil {
			progress(i, iterations, "")
		}
	}
	return passed, nil
}

// verify sorts by the last ranks, untimed as in NPB, and fills in the checks:
// all probes, no key out of order, and no key lost or duplicated in transit.
func (s *sorter) verify(ctx context.Context, arena *bench.Arena, passed int, result *bench.Result) error {
	wrong, err := s.disorder(ctx)
	if err != nil {
		return err
	}
	tally, err := bench.Buffer[int64](arena, 3, "verification")
	if err != nil {
		return err
	}
	tally[0], tally[1], tally[2] = int64(passed), int64(wrong), int64(len(s.received))
	if err := outrigger.Allreduce(ctx, s.comm, tally, tally, outrigger.Sum); err != nil {
		return fmt.Errorf("adding up the verification: %w", err)
	}
	result.Verify(
		bench.Check{Name: "published ranks met", Value: float64(tally[0]), Reference: iterations * probeCount},
		bench.Check{Name: "keys out of order", Value: float64(tally[1])},
		bench.Check{Name: "keys in all", Value: float64(tally[2]), Reference: float64(s.p.keys())})
	return nil
}
