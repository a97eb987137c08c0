package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

var (
	update = flag.Bool("update", false, "write the table of hashes again")
	traces = flag.Int("sim.traces", 10, "play one in this number of the table's jobs; 1: all of them (make replay)")
	kindOf = flag.String("sim.kind", "job", "kind of the job of -sim.trace")
	dump   = flag.String("sim.trace", "", "write the actions of the job of -sim.seed to this file, one per line")
)

// table is the file of the hashes of actions and texts of jobs, by kind and seed. A change of
// it is a change of behaviour, which its commit explains.
var table = filepath.Join("testdata", "traces.txt")

// played is a job of the table.
type played struct {
	kind *Kind
	seed uint64
	line string
	err  error
}

// TestTraces: each job has the hashes of the table. A refactoring changes no hash of actions,
// the first column, and changes hashes of texts, the second, only if it changes texts. To find
// the first action that differs, write the traces of both builds (-sim.trace) and compare the
// files.
func TestTraces(t *testing.T) {
	if *dump != "" {
		dumpTrace(t)
		return
	}
	every := *traces
	if *update {
		every = 1
	}
	var jobs []*played
	for i := range Kinds {
		for seed := 0; seed < Kinds[i].Jobs; seed += every {
			jobs = append(jobs, &played{kind: &Kinds[i], seed: uint64(seed) + 1})
		}
	}
	var wg sync.WaitGroup
	next := make(chan *played)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range next {
				trace, err := j.kind.Play(j.seed, nil)
				j.line, j.err = fmt.Sprintf("%s %d %016x %016x", j.kind.Name, j.seed, trace.Actions(), trace.Texts()), err
			}
		})
	}
	for _, j := range jobs {
		next <- j
	}
	close(next)
	wg.Wait()
	if *update {
		write(t, jobs)
		return
	}
	compare(t, jobs)
}

func write(t *testing.T, jobs []*played) {
	t.Helper()
	var b strings.Builder
	for _, j := range jobs {
		if j.err != nil {
			t.Fatalf("%s %d: %v", j.kind.Name, j.seed, j.err)
		}
		b.WriteString(j.line + "\n")
	}
	if err := os.WriteFile(table, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a file of the repository
		t.Fatal(err)
	}
}

func compare(t *testing.T, jobs []*played) {
	t.Helper()
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		want[strings.Join(f[:2], " ")] = strings.TrimSpace(line)
	}
	actions, texts := 0, 0
	for _, j := range jobs {
		name := fmt.Sprintf("%s %d", j.kind.Name, j.seed)
		if j.err != nil {
			t.Errorf("%s: %v", name, j.err)
			continue
		}
		is, was := strings.Fields(j.line), strings.Fields(want[name])
		switch {
		case len(was) != 4:
			t.Fatalf("%s is not in %s: write it again with -update", name, table)
		case is[2] != was[2]:
			if actions++; actions <= 5 {
				t.Errorf("%s has other actions than in the table: go test ./sidecar/internal/sim -run Traces -sim.kind=%s -sim.seed=%d -sim.trace=FILE, here and at the commit before, and compare the files", name, j.kind.Name, j.seed)
			}
		case is[3] != was[3]:
			if texts++; texts <= 5 {
				t.Errorf("%s has other texts than in the table", name)
			}
		}
	}
	t.Logf("%d jobs: %d have other actions, and of the rest %d other texts; -update writes %s again", len(jobs), actions, texts, table)
}

func dumpTrace(t *testing.T) {
	t.Helper()
	f, err := os.Create(*dump)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // checked below
	for i := range Kinds {
		if Kinds[i].Name != *kindOf {
			continue
		}
		if _, err := Kinds[i].Play(*only, f); err != nil {
			t.Error(err)
		}
		if err := f.Sync(); err != nil {
			t.Error(err)
		}
		return
	}
	t.Fatalf("no kind %q of jobs", *kindOf)
}
