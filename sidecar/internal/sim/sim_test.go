package sim

import (
	"flag"
	"sync"
	"testing"
)

var (
	seeds = flag.Int("sim.seeds", 300, "how many seeds to run")
	only  = flag.Uint64("sim.seed", 0, "run this seed alone")
)

// TestSeeds runs jobs of many seeds; a failure prints its seed.
func TestSeeds(t *testing.T) {
	if *only != 0 {
		if err := Run(*only); err != nil {
			t.Fatal(err)
		}
		return
	}
	const workers = 2
	var wg sync.WaitGroup
	next := make(chan uint64)
	for range workers {
		wg.Go(func() {
			for seed := range next {
				if err := Run(seed); err != nil {
					t.Errorf("%v\n\tgo test ./sidecar/internal/sim -run Seeds -sim.seed=%d", err, seed)
				}
			}
		})
	}
	for seed := 1; seed <= *seeds && !t.Failed(); seed++ {
		next <- uint64(seed)
	}
	close(next)
	wg.Wait()
}
