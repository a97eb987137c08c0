package sim

import (
	"flag"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seeds = flag.Int("sim.seeds", 300, "how many seeds to run")
	first = flag.Uint64("sim.first", 1, "the first of them, so that many can be run in parts")
	only  = flag.Uint64("sim.seed", 0, "run this seed alone")
)

// TestSeeds runs jobs of many seeds; a failure prints its seed.
func TestSeeds(t *testing.T) {
	if *only != 0 {
		if _, err := Run(*only); err != nil {
			t.Fatal(err)
		}
		return
	}
	const workers = 2
	var wg sync.WaitGroup
	var broken atomic.Int64
	next := make(chan uint64)
	for range workers {
		wg.Go(func() {
			for seed := range next {
				n, err := Run(seed)
				broken.Add(int64(n))
				if err != nil {
					t.Errorf("%v\n\tgo test ./sidecar/internal/sim -run Seeds -sim.seed=%d", err, seed)
				}
			}
		})
	}
	for seed := *first; seed < *first+uint64(*seeds) && !t.Failed(); seed++ {
		next <- seed
	}
	close(next)
	wg.Wait()
	t.Logf("%d seeds from %d on, %d broken connections", *seeds, *first, broken.Load())
	// The plan is 4.5 in a third of the seeds. A job that ends sooner leaves some.
	if n := broken.Load(); n < int64(*seeds) && !t.Failed() {
		t.Errorf("%d seeds broke %d connections: too few for what they are to show", *seeds, n)
	}
}

// TestSeedsFair runs fair jobs of many seeds.
func TestSeedsFair(t *testing.T) {
	if *only != 0 {
		if err := Fair(*only); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i := range uint64(max(*seeds/20, 30)) {
		seed := *first/20 + 1 + i
		if err := Fair(seed); err != nil {
			t.Fatalf("%v\n\tgo test ./sidecar/internal/sim -run SeedsFair -sim.seed=%d", err, seed)
		}
	}
}
