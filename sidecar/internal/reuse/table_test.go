package reuse

import (
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// calibrated returns a table with the costs of the tests: copying takes 1 ns for 4 bytes,
// finding 20 ns, registering 10 us and 1 us a page.
func calibrated(t testing.TB, cfg Config) *Table {
	t.Helper()
	table, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for p := range pathCount {
		table.Calibrate(p, []Sample{{0, 0}, {1 << 20, 1 << 18}}, []Sample{{0, 10_000}, {4096, 11_000}}, 20)
	}
	return table
}

func at(off, n uint64) link.Ref { return link.Ref{Region: 5, Off: off, Len: n} }

// uses sends a buffer until it is not copied any more, and returns how often it was copied.
func uses(t *Table, ref link.Ref, most int) int {
	for n := range most {
		b, advice := t.Use(0, PathWrite, ref)
		if advice == Register {
			t.Bought(b, PathWrite, ref.Len)
		}
		if advice != Copy {
			return n
		}
	}
	return most
}

// TestThreshold checks that a buffer is registered after a quarter of n_min.
func TestThreshold(t *testing.T) {
	table := calibrated(t, Config{})
	for _, n := range []uint64{512, 1024, 4096, 8192, 65536} {
		least := table.MinUses(PathWrite, n)
		got := float64(uses(table, at(n<<10, n), 1<<20))
		if got < 0.25*least-1.01 || got > 0.25*least+1.01 {
			t.Errorf("%d bytes: copied %v times, want a quarter of %v", n, got, least)
		}
	}
	if n := uses(table, at(0, 127), 100_000); n != 100_000 {
		t.Errorf("127 bytes are registered after %d uses", n)
	}
}

// TestPapersThresholds checks that with a paper's costs, n_min is that of its Table 2. R_m
// is the same for all sizes that fit a page; C_m - V follows from it. (It shows the
// arithmetic and the size classes, not the papers' platform.)
func TestPapersThresholds(t *testing.T) {
	fast := map[uint64]float64{512: 432, 1024: 200, 2048: 110, 3072: 76, 4096: 60, 5120: 48, 6144: 40, 7168: 36, 8192: 32}
	table, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	const register, overhead = 40_000, 100
	var copies []Sample
	for _, n := range []uint64{512, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192} {
		copies = append(copies, Sample{n, register/fast[n] + overhead})
	}
	table.Calibrate(PathWrite, copies, []Sample{{1, register}}, overhead)
	for n, want := range fast {
		if got := table.MinUses(PathWrite, n); got < want*0.999 || got > want*1.001 {
			t.Errorf("%d bytes: n_min %v, want %v", n, got, want)
		}
	}
	if n := uses(table, at(0, 4096), 1000); n != 14 { // its 15th use: 25 % of 60 (000, section 3.3.1)
		t.Errorf("4 KB: copied %d times, want 14", n)
	}
}

// TestMeasuredCosts checks that thresholds follow the observations.
func TestMeasuredCosts(t *testing.T) {
	table := calibrated(t, Config{})
	before := table.MinUses(PathPut, 4096)
	for range 200 {
		table.ObserveRegister(4096, 22_000)
	}
	if got := table.MinUses(PathPut, 4096); got < 1.9*before || got > 2.1*before {
		t.Errorf("registering costs twice as much: n_min %v, was %v", got, before)
	}
	for range 200 {
		table.ObserveCopy(PathPut, 4096, 15) // less than finding the registration
	}
	if _, advice := table.Use(0, PathPut, at(0, 4096)); advice != Copy || table.MinUses(PathPut, 4096) < 1e300 {
		t.Error("there is nothing to gain, and the table is asked")
	}
	if table.MinUses(PathGet, 4096) > 1e300 {
		t.Error("another path has other costs")
	}
}

// TestEvicted checks that a buffer whose registration was evicted counts from the start.
func TestEvicted(t *testing.T) {
	table := calibrated(t, Config{})
	first := uses(table, at(0, 4096), 1000)
	b, advice := table.Use(0, PathWrite, at(0, 4096))
	if advice != Gather {
		t.Fatalf("advice %d, want to gather", advice)
	}
	table.Lost(b)
	if again := uses(table, at(0, 4096), 1000); again != first {
		t.Errorf("copied %d times after the eviction, %d before", again, first)
	}
	if c := table.Session(0); c.Frequent != 1 || c.Registered != 2 || c.Known != 1 {
		t.Errorf("%+v", c)
	}
}

// TestStops checks that if buffers are not used again, the table stops growing, is not
// searched any more, and tries again, less and less often.
func TestStops(t *testing.T) {
	table := calibrated(t, Config{Buckets: 1 << 10, Window: 1 << 10})
	next := uint64(0)
	for range 1 << 20 {
		table.Use(0, PathWrite, at(next, 512))
		next += 512
	}
	c, s := table.Session(0), table.Stats()
	if c.Seen > 2000 || s.Restarts < 5 || s.Restarts > 40 || s.Registered != 0 {
		t.Fatalf("%+v %+v", c, s)
	}
}

// TestPhases checks that the table finds the buffers of a phase with reuse after one
// without.
func TestPhases(t *testing.T) {
	table := calibrated(t, Config{Buckets: 1 << 10, Window: 1 << 10})
	for i := range uint64(1 << 14) {
		table.Use(0, PathWrite, at(i<<10, 1024))
	}
	if c := table.Session(0); !c.Stopped {
		t.Fatalf("%+v", c)
	}
	gathers := 0
	for i := range uint64(1 << 18) {
		ref := at(1<<30+i%64<<13, 8192)
		b, advice := table.Use(0, PathWrite, ref)
		switch advice {
		case Register:
			table.Bought(b, PathWrite, ref.Len)
		case Gather:
			gathers++
		}
	}
	if c := table.Session(0); gathers < 1<<17 || c.Stopped || c.Frequent < 64 {
		t.Fatalf("%d gathers, %+v", gathers, c)
	}
}

// TestSessionsApart checks that a rank that uses no buffer twice does not stop another
// one's part of the table.
func TestSessionsApart(t *testing.T) {
	table := calibrated(t, Config{Buckets: 1 << 10, Window: 1 << 10, Sessions: 2})
	for i := range uint64(1 << 16) {
		table.Use(1, PathSend, link.Ref{Region: 6, Off: i << 10, Len: 1024})
		ref := at(i%16<<13, 8192)
		if b, advice := table.Use(0, PathSend, ref); advice == Register {
			table.Bought(b, PathSend, ref.Len)
		}
	}
	if a, b := table.Session(0), table.Session(1); a.Stopped || a.Frequent != 16 || b.Frequent != 0 || b.Stops == 0 {
		t.Fatalf("%+v %+v", a, b)
	}
}

// TestBounded checks that the table does not exceed its entries, and that those of an
// earlier age are replaced.
func TestBounded(t *testing.T) {
	table := calibrated(t, Config{Buckets: 1 << 12, Entries: 256, Window: 1 << 10, Frequent: -1})
	for i := range uint64(1 << 16) {
		table.Use(0, PathWrite, at(i%1000<<12, 4096))
	}
	if n := len(table.entries); n > 257 {
		t.Fatalf("%d entries", n)
	}
	chains := 0
	for _, id := range table.index.heads {
		for ; id != 0; id = table.entries[id].next {
			chains++
		}
	}
	if chains > 256 || table.Stats().Restarts == 0 {
		t.Fatalf("%d entries in chains; %+v", chains, table.Stats())
	}
}

// TestAgainstMap compares the table with a map, over random uses.
func TestAgainstMap(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		table := calibrated(t, Config{Buckets: 2 << rng.IntN(10), Frequent: -1, Fraction: 0.01 + 0.99*rng.Float64(), GrantNS: 1e15})
		type known struct {
			rent       float64
			registered bool
		}
		slow := map[link.Ref]*known{}
		for step := range 10_000 {
			ref := link.Ref{Region: link.Region(4 + rng.IntN(3)), Off: rng.Uint64N(64) << rng.IntN(14)}
			n := uint64(1) << (5 + rng.IntN(12))
			x := slow[ref]
			want := Copy
			gain := float64(n)/4 - 20
			full, _ := table.index.full(table.entries, ref.Region, ref.Off, table.over)
			unknown := x == nil && full
			if x == nil && n >= 128 && !unknown {
				x = new(known)
				slow[ref] = x
			}
			ref.Len = n
			b, advice := table.Use(0, PathWrite, ref)
			switch {
			case n < 128 || unknown:
			case x.registered:
				want = Gather
			default:
				x.rent += gain
				if x.rent >= float64(table.prices[PathWrite][class(n)].trigger) {
					want = Register
				}
			}
			if advice != want {
				t.Fatalf("seed %d step %d: %v: advice %d, want %d", seed, step, ref, advice, want)
			}
			switch {
			case advice == Register:
				table.Bought(b, PathWrite, n)
				x.registered = true
			case advice == Gather && rng.IntN(20) == 0:
				table.Lost(b)
				*x = known{}
			}
		}
	}
}

// TestCrowded checks that buffers that all begin on one page, or were chosen for their
// hash, cost a bounded search.
func TestCrowded(t *testing.T) {
	table := calibrated(t, Config{Frequent: -1})
	for round := range 2 {
		for off := range uint64(4096) {
			table.Use(0, PathWrite, at(off, 4096))
		}
		if c := table.Session(0); c.Seen != chainMax || table.Stats().Crowded == 0 {
			t.Fatalf("round %d: %+v", round, c)
		}
	}
}

// TestUseAllocates checks that a use allocates nothing, of a known buffer or not.
func TestUseAllocates(t *testing.T) {
	table := calibrated(t, Config{})
	off := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		off += 4096
		table.Use(0, PathWrite, at(off, 4096))
		table.Use(0, PathWrite, at(0, 4096))
	}); n != 0 {
		t.Fatalf("%v allocations a use", n)
	}
}

// benchmarkUse uses n registered buffers, in the order of their registration, as a
// program's loop does, or in a random one, which is the worst for the CPU's caches.
func benchmarkUse(b *testing.B, n int, random bool) {
	table := calibrated(b, Config{Frequent: -1})
	rng := rand.New(rand.NewPCG(1, 1))
	offs := make([]uint64, n)
	for i, p := range rng.Perm(n) {
		offs[i] = uint64(p) * 4096
		for range 200 {
			if buf, advice := table.Use(0, PathWrite, at(offs[i], 2048)); advice == Register {
				table.Bought(buf, PathWrite, 2048)
			}
		}
	}
	if random {
		rng.Shuffle(n, func(i, j int) { offs[i], offs[j] = offs[j], offs[i] })
	}
	b.ResetTimer()
	k := 0
	for range b.N {
		if _, advice := table.Use(0, PathWrite, at(offs[k], 2048)); advice != Gather {
			b.Fatal("not all buffers are registered")
		}
		if k++; k == n {
			k = 0
		}
	}
}

func BenchmarkUse(b *testing.B) {
	b.Run("100", func(b *testing.B) { benchmarkUse(b, 100, false) })
	b.Run("100k", func(b *testing.B) { benchmarkUse(b, 100_000, false) })
	b.Run("100k-random", func(b *testing.B) { benchmarkUse(b, 100_000, true) })
}

// BenchmarkBare measures the reference: the same number of bytes in the same orders without a
// decision, the head of a chain read and half a cache line changed.
func BenchmarkBare(b *testing.B) {
	bare := func(n int, random bool) func(*testing.B) {
		return func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			table := newIndex(1 << 20)
			lines, offs := make([][8]uint32, n+1), make([]uint64, n)
			for i, p := range rng.Perm(n) {
				offs[i] = uint64(p) * 4096
				table.heads[table.bucket(5, offs[i])] = uint32(i + 1)
			}
			if random {
				rng.Shuffle(n, func(i, j int) { offs[i], offs[j] = offs[j], offs[i] })
			}
			b.ResetTimer()
			k := 0
			for range b.N {
				lines[table.heads[table.bucket(5, offs[k])]][0]++
				if k++; k == n {
					k = 0
				}
			}
		}
	}
	b.Run("100", bare(100, false))
	b.Run("100k", bare(100_000, false))
	b.Run("100k-random", bare(100_000, true))
}
