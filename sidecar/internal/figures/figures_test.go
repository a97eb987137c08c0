package figures

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/mover"
)

// least is enough to see the laws.
func least() Effort { return Effort{Rounds: 100, Step: 250, Ends: true} }

// TestReport runs everything once and writes it: every headline of the papers has a
// row, every row says what makes it or why it is not there, and every plot has its
// file.
func TestReport(t *testing.T) {
	var parts []string
	r, err := Run(least(), func(part string) { parts = append(parts, part) })
	if err != nil {
		t.Fatal(err)
	}
	papers := map[string]int{}
	for _, x := range r.Rows {
		papers[x.Paper[:3]]++
		if x.What == "" || x.Unit == "" || x.Runs() && x.Law == "" || !x.Runs() && x.Note == "" {
			t.Errorf("a row says too little: %+v", x)
		}
	}
	for paper, want := range map[string]int{"000": 15, "001": 8, "002": 5, "004": 8} {
		if papers[paper] < want {
			t.Errorf("%d rows of paper %s, want %d", papers[paper], paper, want)
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

// checkLaws holds those rows to the papers that the models alone decide, whatever the
// effort. (How many rows come near is what `outrigger figures` reports.)
func checkLaws(t *testing.T, r *Report) {
	t.Helper()
	must := map[string]bool{"001 fig. 6": true, "001 fig. 7": true, "001 fig. 8": true, "001 fig. 9": true, "004 fig. 8": true, "004 fig. 11": true, "004 fig. 14": true, "000 fig. 5a": true, "004 fig. 5": true, "004 figs. 16, 17": true}
	for i := range r.Rows {
		if x := &r.Rows[i]; must[x.Paper] && !x.Near() {
			t.Errorf("%s, %s: %v, the paper's is %v", x.Paper, x.What, x.Ours, x.Theirs)
		}
	}
}

// TestSameFigures: virtual time does not depend on the machine, nor on chance.
func TestSameFigures(t *testing.T) {
	run := func() float64 {
		ns, err := bowtie(mover.Put, 5, 4096, zeroes)
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	if a, b := run(), run(); a != b || a == 0 {
		t.Errorf("%v ns, then %v", a, b)
	}
}
