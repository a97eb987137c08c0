package reuse

import (
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// idleAge ends a session's age by uses of unknown buffers only.
func idleAge(t *testing.T, table *Table, s Session) {
	t.Helper()
	a := &table.sessions[s]
	table.stop(a)
	for epoch := a.epoch; a.epoch == epoch; {
		table.judge(a)
		a.unknown, a.used = table.cfg.Window, table.cfg.Window
	}
}

// TestBucketOfAnotherAge checks that a page on which the program has used as many buffers
// as a bucket holds, in an earlier phase, has room for the buffers of the next phase.
func TestBucketOfAnotherAge(t *testing.T) {
	table := calibrated(t, Config{Frequent: -1})
	for off := range uint64(chainMax) {
		table.Use(0, PathWrite, at(off, 4096))
	}
	table.Use(0, PathWrite, at(2000, 4096))
	if table.Stats().Crowded != 1 {
		t.Fatalf("no test: %+v", table.Stats())
	}
	idleAge(t, table, 0)
	for off := range uint64(chainMax) {
		if n := uses(table, at(2000+off, 4096), 1000); n == 1000 {
			t.Fatalf("buffer %d of the next phase is never registered: %+v", off, table.Session(0))
		}
	}
	if c := table.Session(0); c.Known != chainMax || c.Frequent != chainMax {
		t.Errorf("%+v", c)
	}
}

// TestEntriesOfAnotherAge checks that a table whose entries are all of an earlier phase
// accepts the buffers of the next one.
func TestEntriesOfAnotherAge(t *testing.T) {
	table := calibrated(t, Config{Buckets: 1 << 12, Entries: 256, Frequent: -1})
	for i := range uint64(256) {
		table.Use(0, PathWrite, at(i<<12, 4096))
	}
	idleAge(t, table, 0)
	for i := range uint64(256) {
		if n := uses(table, at(1<<30+i<<12, 4096), 1000); n == 1000 {
			t.Fatalf("buffer %d of the next phase is never registered: %+v", i, table.Session(0))
		}
	}
}

// TestEntriesAreShared checks that a rank that has used all entries, and uses all of its
// buffers often, gives entries to another one up to that one's share.
func TestEntriesAreShared(t *testing.T) {
	table := calibrated(t, Config{Buckets: 1 << 12, Entries: 512, Sessions: 2, Frequent: -1})
	for i := range uint64(512) {
		for range 300 {
			ref := link.Ref{Region: 6, Off: i << 12, Len: 4096}
			if b, advice := table.Use(1, PathWrite, ref); advice == Register {
				table.Bought(b, PathWrite, ref.Len)
			}
		}
	}
	if c := table.Session(1); c.Known != 512 || c.Frequent != 512 {
		t.Fatalf("no test: %+v", c)
	}
	for i := range uint64(256) {
		if n := uses(table, at(i<<12, 4096), 1000); n == 1000 {
			t.Fatalf("buffer %d is never registered: %+v", i, table.Session(0))
		}
	}
	if a, b := table.Session(0), table.Session(1); a.Known != 256 || a.Frequent != 256 || b.Known != 256 || b.Frequent != 256 {
		t.Errorf("%+v %+v", a, b)
	}
	if n := uses(table, at(1<<30, 4096), 1000); n != 1000 {
		t.Errorf("more than a share was taken from another")
	}
}

// TestDormant checks that no use of a session without gathers is looked up until its pause
// is over.
func TestDormant(t *testing.T) {
	table := calibrated(t, Config{Buckets: 1 << 10, Window: 1 << 10})
	a := &table.sessions[0]
	for i := uint64(0); !a.dormant; i++ {
		if i > 1<<20 {
			t.Fatalf("a million buffers used once each are still looked up: %+v", table.Session(0))
		}
		table.Use(0, PathWrite, at(i<<12, 1024))
	}
	for i := range uint64(100) {
		table.Use(0, PathWrite, at(i<<12, 1024))
	}
	if a.unknown != 0 || a.used != 100 {
		t.Errorf("%d of %d uses were looked up", a.unknown, a.used)
	}
}

// TestOutlier checks that one measurement during which the thread was preempted changes no
// threshold by more than a quarter.
func TestOutlier(t *testing.T) {
	table := calibrated(t, Config{})
	for what, observe := range map[string]func(){
		"a copy":         func() { table.ObserveCopy(PathSend, 4096, 1e9) },
		"a registration": func() { table.ObserveRegister(4096, 1e9) },
		"a look-up":      func() { table.ObserveOverhead(PathSend, 1e9) },
	} {
		before := table.MinUses(PathSend, 4096)
		observe()
		if after := table.MinUses(PathSend, 4096); after < before*0.75 || after > before*1.25 {
			t.Errorf("%s: n_min was %.1f, is %.1f", what, before, after)
		}
	}
}

// TestCounts compares the counts of sessions with their entries, through ages, evictions
// and ranks that leave.
func TestCounts(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		const sessions = 3
		table := calibrated(t, Config{Buckets: 2 << rng.IntN(9), Entries: 8 + rng.IntN(300), Sessions: sessions, Window: 1 << (6 + rng.IntN(6)), Fraction: 0.01, GrantNS: 1e15})
		for step := range 20_000 {
			s := Session(rng.IntN(sessions))
			ref := link.Ref{Region: link.Region(4 + s), Off: (uint64(step/5000)<<30 + rng.Uint64N(1<<rng.IntN(12))<<8), Len: 1 << (7 + rng.IntN(8))}
			b, advice := table.Use(s, PathWrite, ref)
			switch {
			case advice == Register && rng.IntN(4) > 0:
				table.Bought(b, PathWrite, ref.Len)
			case advice == Register || advice == Gather && rng.IntN(20) == 0:
				table.Lost(b)
			}
			if rng.IntN(1000) == 0 {
				table.Forget(s)
			}
			if step%100 != 0 {
				continue
			}
			var known, frequent [sessions]uint32
			for i := range table.entries[1:] {
				e := &table.entries[i+1]
				if e.state == stateFree || table.over(e) {
					continue
				}
				known[e.session]++
				if e.state == stateRegistered {
					frequent[e.session]++
				}
			}
			for s := range sessions {
				if c := table.Session(Session(s)); c.Known != known[s] || c.Frequent != frequent[s] {
					t.Fatalf("seed %d step %d: session %d has %d buffers, %d registered, and counts %d and %d", seed, step, s, known[s], frequent[s], c.Known, c.Frequent)
				}
			}
		}
	}
}
