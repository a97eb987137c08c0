package reuse

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// ledger plays uses on a table and keeps two accounts: the cost of its decisions, and the
// cost of the best ones.
type ledger struct {
	table  *Table
	cost   float64
	bufs   map[link.Ref]*bill
	copied map[link.Ref]int
}

// bill is the account of one buffer: the cost of all its uses if copied and if gathered,
// and of the registration.
type bill struct{ copied, gathered, register float64 }

func (l *ledger) use(ref link.Ref) Advice {
	c, v := float64(ref.Len)/4, 20.0
	r := float64(l.table.prices[PathWrite][class(ref.Len)].register)
	x := l.bufs[ref]
	if x == nil {
		x = &bill{register: r}
		l.bufs[ref] = x
	}
	x.copied += c
	x.gathered += v
	b, advice := l.table.Use(0, PathWrite, ref)
	switch advice {
	case Copy:
		l.cost += v + c // the lookup was of no use
	case Gather:
		l.cost += v
	case Register:
		l.cost += v + r
		l.table.Bought(b, PathWrite, ref.Len)
	}
	return advice
}

// best returns the cost of the best decisions: for each buffer all copies, or a
// registration at once.
func (l *ledger) best() float64 {
	sum := 0.0
	for _, x := range l.bufs {
		sum += min(x.copied, x.register+x.gathered)
	}
	return sum
}

func newLedger(t *testing.T, cfg Config) *ledger {
	return &ledger{table: calibrated(t, cfg), bufs: map[link.Ref]*bill{}, copied: map[link.Ref]int{}}
}

// patterns are ways to use buffers. The last ones know the table's decisions and are chosen
// to make them expensive.
var patterns = map[string]func(rng *rand.Rand, l *ledger){
	"random": func(rng *rand.Rand, l *ledger) {
		n := 1 + rng.Uint64N(300)
		for range 20_000 {
			l.use(at(rng.Uint64N(n)<<17, sizes[rng.IntN(len(sizes))]))
		}
	},
	"spectrum": func(rng *rand.Rand, l *ledger) { // of paper 000: buffer i is used i times
		n := sizes[rng.IntN(len(sizes))]
		for i := range uint64(300) {
			for range i {
				l.use(at(i<<17, n))
			}
		}
	},
	"skewed": func(rng *rand.Rand, l *ledger) {
		for range 20_000 {
			i := uint64(math.Exp(rng.Float64() * 8))
			l.use(at(i<<17, sizes[i%uint64(len(sizes))]))
		}
	},
	"leaves when registered": func(rng *rand.Rand, l *ledger) {
		n, buf := sizes[rng.IntN(len(sizes))], uint64(0)
		for range 50_000 {
			if l.use(at(buf<<17, n)) == Register {
				buf++
			}
		}
	},
	"earns, then leaves when registered": func(rng *rand.Rand, l *ledger) {
		for range 5_000 {
			l.use(at(0, 8192))
		}
		buf := uint64(1)
		for range 50_000 {
			if l.use(at(buf<<17, 1024)) == Register {
				buf++
			}
		}
	},
	"many at once leave when registered": func(rng *rand.Rand, l *ledger) {
		gone := map[uint64]bool{}
		for range 50_000 {
			buf := rng.Uint64N(500)
			if !gone[buf] {
				gone[buf] = l.use(at(buf<<17, 4096)) == Register
			}
		}
	},
}

var sizes = []uint64{128, 512, 1600, 4096, 8192, 60_000}

// TestAnyPattern checks for each pattern that the table's decisions cost at most twice what
// the best ones in hindsight would, in addition to the grant for speculation; 2% are for
// the one use by which a threshold is exceeded.
func TestAnyPattern(t *testing.T) {
	seed := rand.Uint64()
	for name, play := range patterns {
		for _, fraction := range []float64{0.05, 0.25, 0.5, 1} {
			for _, grant := range []float64{1, 1e5} {
				l := newLedger(t, Config{Fraction: fraction, GrantNS: grant})
				play(rand.New(rand.NewPCG(seed, 1)), l)
				if most := 2*l.best() + grant; l.cost > most*1.02 {
					t.Errorf("seed %d: %s, f=%v, grant %v: costs %.0f, the best %.0f, ratio %.2f",
						seed, name, fraction, grant, l.cost, l.best(), l.cost/l.best())
				}
			}
		}
	}
}

// TestSpeculationUnchecked shows that the credit causes the bound: with an unlimited grant,
// as in the papers, a program that stops using a buffer when it is registered makes the
// table pay several times the best cost.
func TestSpeculationUnchecked(t *testing.T) {
	l := newLedger(t, Config{GrantNS: 1e15})
	buf := uint64(0)
	for range 50_000 {
		if l.use(at(buf<<17, 4096)) == Register {
			buf++
		}
	}
	if ratio := l.cost / l.best(); ratio < 3 {
		t.Fatalf("ratio %.2f: the pattern is no test", ratio)
	}
}

// TestNoHarm checks that a program whose buffers are used just too seldom for a
// registration to pay, as AMG2006 in paper 000, section 5.2, loses the grant and the cost
// of looking its buffers up, and no more.
func TestNoHarm(t *testing.T) {
	const grant = 1e5
	for _, uses := range []int{60, 119, 150} {
		l := newLedger(t, Config{GrantNS: grant, Frequent: -1})
		copies := 0.0
		for buf := range uint64(2000) {
			for range uses {
				l.use(at(buf<<17, 256)) // n_min is 228
				copies += 256/4 + 20
			}
		}
		if l.cost > copies+grant {
			t.Errorf("%d uses each: costs %.0f, copies alone %.0f", uses, l.cost, copies)
		}
		if l.table.Stats().Registered == 0 {
			t.Errorf("%d uses each: nothing was speculated", uses)
		}
	}
}
