package figures

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// least returns the smallest effort that shows the laws.
func least() Effort { return Effort{Rounds: 100, Step: 250, Ends: true} }

// TestReport runs each experiment once and writes the report: every headline of the papers
// has a row, every row names its law or the reason for its absence, and every plot has its
// file.
func TestReport(t *testing.T) {
	var parts []string
	r, err := Run(least(), func(part string) { parts = append(parts, part) })
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, x := range r.Rows {
		rows[fmt.Sprint(x.Paper[:3], " ", x.Theirs)] = true
		if x.What == "" || x.Unit == "" || x.Runs() && x.Law == "" || !x.Runs() && x.Note == "" {
			t.Errorf("a row is incomplete: %+v", x)
		}
	}
	for paper, values := range headlines {
		for _, v := range values {
			if !rows[fmt.Sprint(paper, " ", v)] {
				t.Errorf("no row has paper %s's %v", paper, v)
			}
		}
	}
	dir := t.TempDir()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Plots {
		if info, err := os.Stat(filepath.Join(dir, p.Name+".png")); err != nil || info.Size() == 0 {
			t.Errorf("%s has no picture: %v", p.Name, err)
		}
		if !bytes.Contains(page, []byte(p.Name+".png")) {
			t.Errorf("%s is not on the page", p.Name)
		}
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil || strings.Count(table.String(), "\n") < len(r.Rows) {
		t.Errorf("%v\n%s", err, table.String())
	}
	checkLaws(t, r)
}

// headlines are the ratios and values for which the papers are known: ping-pong, spectrum,
// put, get, broadcast, scatter and the four applications; 2009's; orderings are rows of 1.
var headlines = map[string][]float64{
	"000": {14, 12.7, 20, 17, 25, 0, 18.3, 7, 1, 2},
	"001": {0, 24.6, 16.37, 26.13, 37.84, 25.67, 41.72, 11.14},
	"003": {1140, 1114, 50, 30, 26, 95, 60, 80, 24, 32, 41, 10, 1},
	"002": {14, 12.7, 19, 10.6, 8.1},
	"004": {18.6, 230, 7.4, 500, 7.6, 857, 1},
}

// checkLaws compares with the papers those rows that the models alone determine, at any
// effort. (`outrigger figures` reports how many rows are near.)
func checkLaws(t *testing.T, r *Report) {
	t.Helper()
	must := map[string]bool{"001 fig. 6": true, "001 fig. 7": true, "001 fig. 8": true, "001 fig. 9": true, "004 fig. 8": true, "004 fig. 11": true, "004 fig. 14": true, "000 fig. 5a": true, "004 fig. 5": true, "004 figs. 16, 17": true}
	for i := range r.Rows {
		if x := &r.Rows[i]; must[x.Paper] && !x.Near() {
			t.Errorf("%s, %s: %v, the paper's is %v", x.Paper, x.What, x.Ours, x.Theirs)
		}
	}
}

// TestSameFigures checks that virtual time depends neither on the machine nor on chance.
func TestSameFigures(t *testing.T) {
	run := func() float64 {
		ns, err := bowtie(rendezvous.Put, 5, 4096, zeroes)
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	if a, b := run(), run(); a != b || a == 0 {
		t.Errorf("%v ns, then %v", a, b)
	}
}
