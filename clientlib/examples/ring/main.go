// Command ring passes blocks of numbers around a ring of ranks and checks every
// block that arrives:
//
//	outrigger run -n 4 --pods 2 -- bin/ring -rounds 1000 -bytes 100000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

func main() {
	rounds := flag.Int("rounds", 100, "how often every rank sends to the next")
	size := flag.Int("bytes", 1<<16, "size of a block")
	private := flag.Bool("private", false, "send ordinary memory instead of memory shared with the sidecar")
	pause := flag.Duration("pause", 0, "wait this long between rounds")
	file := flag.String("checkpoint", "", "on SIGTERM write the round into this file, and end with code 85; begin with the round that it has")
	var f failure
	flag.IntVar(&f.rank, "fail-rank", -1, "this rank exits in the middle; -1: none")
	flag.IntVar(&f.round, "fail-round", 10, "in this round")
	flag.IntVar(&f.code, "fail-code", 3, "with this exit code")
	flag.Parse()
	stopped, err := run(context.Background(), *rounds, *size/8, *private, *pause, f, newCheckpoint(*file))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "ring:", err)
		os.Exit(1)
	case stopped:
		os.Exit(exitCheckpoint)
	}
}

// failure makes a rank exit with a code in a round, without closing its session, for tests
// of failure reports.
type failure struct{ rank, round, code int }

func run(ctx context.Context, rounds, n int, private bool, pause time.Duration, f failure, c *checkpoint) (stopped bool, err error) {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return false, err
	}
	out, in := make([]uint64, n), make([]uint64, n)
	if !private {
		if out, err = outrigger.Alloc[uint64](s, n); err != nil {
			return false, err
		}
		if in, err = outrigger.Alloc[uint64](s, n); err != nil {
			return false, err
		}
	}
	world := s.World()
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	fmt.Printf("rank %d is process %d\n", me, os.Getpid())
	first, err := c.begin(ctx, world)
	if err != nil {
		return false, err
	}
	for round := first; round < rounds; round++ {
		if stopped, err = c.stops(ctx, world, round); err != nil || stopped {
			return stopped, errors.Join(err, s.Close())
		}
		if me == f.rank && round == f.round {
			os.Exit(f.code)
		}
		fill(out, me, round)
		if _, err := outrigger.Sendrecv(ctx, world, out, next, round&0xffff, in, previous, round&0xffff); err != nil {
			return false, fmt.Errorf("round %d: %w", round, err)
		}
		if err := check(in, previous, round); err != nil {
			return false, err
		}
		time.Sleep(pause)
	}
	if err := world.Barrier(ctx); err != nil {
		return false, err
	}
	if me == 0 {
		fmt.Printf("%d rounds of %d bytes over %d ranks: every byte right\n", rounds, 8*n, size)
	}
	return false, s.Close()
}

// word returns element i of a block: different for every rank, round and index.
func word(rank, round, i int) uint64 {
	return (uint64(rank)<<48 ^ uint64(round)<<20 ^ uint64(i)) * 0x9e3779b97f4a7c15
}

func fill(b []uint64, rank, round int) {
	for i := range b {
		b[i] = word(rank, round, i)
	}
}

func check(b []uint64, rank, round int) error {
	for i, v := range b {
		if v != word(rank, round, i) {
			return fmt.Errorf("round %d: word %d from rank %d is %#x, want %#x", round, i, rank, v, word(rank, round, i))
		}
	}
	return nil
}
