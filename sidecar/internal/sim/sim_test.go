package sim

import (
	"flag"
	"sync"
	"testing"
)

var (
	seeds = flag.Int("sim.seeds", 300, "number of seeds to run")
	first = flag.Uint64("sim.first", 1, "first seed, so that many seeds can be run in parts")
	only  = flag.Uint64("sim.seed", 0, "run only this seed")
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
	var mu sync.Mutex
	var all Coverage
	next := make(chan uint64)
	for range workers {
		wg.Go(func() {
			for seed := range next {
				c, err := Run(seed)
				mu.Lock()
				all.add(c)
				mu.Unlock()
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
	t.Logf("%d seeds from %d on: %+v", *seeds, *first, all)
	// A third of the seeds plan 4.5 broken connections each; jobs that end before have fewer.
	// A last byte that is no sign of arrival is rare: one in hundreds of the offered messages.
	// One seed in eight has such a message, and one in ten reads lent memory or is refused:
	// of 300 seeds at least half of that is wanted. One in four has small windows of credit.
	few := min(8*all.Offered, all.Rings, all.Reads, 2*all.Puts, 2*all.Gets, 2*all.Exposed, uint64(all.Landed), 2*uint64(all.Gathers), uint64(all.Parts), uint64(all.Late), 16*uint64(all.Lent.Reads), 16*uint64(all.Lent.Refused), uint64(all.Lent.Copied), 60*uint64(all.Frozen), all.Widened, 8*all.Narrowed, all.Discards) < uint64(*seeds)/2
	if !t.Failed() && (all.Broken < *seeds || few || all.Collided == 0 && *seeds >= 2000) {
		t.Errorf("%d seeds: %+v: too little for what they are to show", *seeds, all)
	}
}

// TestFalseDeliveryIsFound: a link that reports delivery before a frame has arrived is found
// within a few seeds: by a payload that has changed, by a frame that a peer requests again, or
// by a job that does not end.
func TestFalseDeliveryIsFound(t *testing.T) {
	const within = 30
	for seed := *first; seed < *first+within; seed++ {
		if err := RunFalseDelivery(seed); err != nil {
			t.Logf("found: %v", err)
			return
		}
	}
	t.Errorf("seeds %d to %d do not find links that report delivery too early", *first, *first+within-1)
}

// TestSeedsFair runs fair jobs of many seeds.
func TestSeedsFair(t *testing.T) { each(t, Fair, 20, 30) }

// TestSeedsHoard runs jobs with a hoarder of many seeds.
func TestSeedsHoard(t *testing.T) { each(t, Hoard, 100, 20) }

// each runs jobs of one kind: one for every part seeds, and at least least.
func each(t *testing.T, run func(seed uint64) error, part, least int) {
	if *only != 0 {
		if err := run(*only); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i := range uint64(max(*seeds/part, least)) {
		seed := *first/uint64(part) + 1 + i
		if err := run(seed); err != nil {
			t.Fatalf("%v\n\tgo test ./sidecar/internal/sim -run %s -sim.seed=%d", err, t.Name()[len("Test"):], seed)
		}
	}
}

// TestSeedsCached runs jobs whose links cache registrations.
func TestSeedsCached(t *testing.T) {
	if *only != 0 {
		if _, err := RunCached(*only); err != nil {
			t.Fatal(err)
		}
		return
	}
	var all Coverage
	n := max(*seeds/4, 60)
	for i := range uint64(n) {
		seed := *first + i
		c, err := RunCached(seed)
		all.add(c)
		if err != nil {
			t.Fatalf("%v\n\tgo test ./sidecar/internal/sim -run SeedsCached -sim.seed=%d", err, seed)
		}
	}
	if t.Logf("%d seeds: %+v", n, all); min(all.Kept, all.Evicted) < uint64(n)/16 {
		t.Errorf("%d seeds: %+v: too little for what they are to show", n, all)
	}
}

// TestSeedsExposed runs jobs whose applications expose memory of their own.
func TestSeedsExposed(t *testing.T) {
	if *only != 0 {
		if _, err := RunExposed(*only); err != nil {
			t.Fatal(err)
		}
		return
	}
	var all Coverage
	n := max(*seeds/20, 60)
	for i := range uint64(n) {
		seed := *first + i
		c, err := RunExposed(seed)
		all.add(c)
		if err != nil {
			t.Fatalf("%v\n\tgo test ./sidecar/internal/sim -run SeedsExposed -sim.seed=%d", err, seed)
		}
	}
	x := &all.Lent
	if t.Logf("%d seeds: %+v", n, all); min(x.Reads, x.Refused, 6*x.Broken, x.Copied, x.Ended) < n/2 {
		t.Errorf("%d seeds: %+v: too little for what they are to show", n, all)
	}
}

// TestSeedsResting runs jobs whose engines sleep.
func TestSeedsResting(t *testing.T) {
	if *only != 0 {
		if _, err := RunResting(*only); err != nil {
			t.Fatal(err)
		}
		return
	}
	var all Coverage
	n := max(*seeds/4, 60)
	for i := range uint64(n) {
		seed := *first + i
		c, err := RunResting(seed)
		all.add(c)
		if err != nil {
			t.Fatalf("%v\n\tgo test ./sidecar/internal/sim -run SeedsResting -sim.seed=%d", err, seed)
		}
	}
	if t.Logf("%d seeds: %+v", n, all); min(all.Slept, 100*all.Quiet, int(all.Rings), all.Casts, all.Looks) < 10*n {
		t.Errorf("%d seeds: %+v: too little for what they are to show", n, all)
	}
}

// TestSeedsAgain runs jobs whose ranks attach again.
func TestSeedsAgain(t *testing.T) {
	if *only != 0 {
		if _, err := RunAgain(*only); err != nil {
			t.Fatal(err)
		}
		return
	}
	var all Coverage
	n := max(*seeds/4, 60)
	for i := range uint64(n) {
		seed := *first + i
		c, err := RunAgain(seed)
		all.add(c)
		if err != nil {
			t.Fatalf("%v\n\tgo test ./sidecar/internal/sim -run SeedsAgain -sim.seed=%d", err, seed)
		}
	}
	if t.Logf("%d seeds: %+v", n, all); min(all.Early, all.Broken, int(all.Puts), int(all.Reads)) < n/2 {
		t.Errorf("%d seeds: %+v: too little for what they are to show", n, all)
	}
}

// TestKeptSeeds runs seeds that have found a defect and that the other tests do not run.
func TestKeptSeeds(t *testing.T) {
	for seed, what := range map[uint64]string{
		1723: "a sidecar that was stopped while it waited for connections alone blames a peer",
	} {
		if _, err := RunExposed(seed); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
