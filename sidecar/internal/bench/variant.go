package bench

import (
	"fmt"
	"io"
	"slices"
)

// row is one experiment of a test with variants: what came of each.
type row struct {
	op    string
	bytes int
	rate  bool                 // MB/s, of which more is better, not us
	all   map[string][]float64 // by variant, one of each turn
}

// rowsOf sorts figures into rows, in the order in which they first came.
func rowsOf(figures []Figure) (rows []*row) {
	for _, f := range figures {
		i := slices.IndexFunc(rows, func(r *row) bool { return r.op == f.Op && r.bytes == f.Bytes })
		if i < 0 {
			rows, i = append(rows, &row{f.Op, f.Bytes, f.MBs > 0, map[string][]float64{}}), len(rows)
		}
		v := f.US
		if f.MBs > 0 {
			v = f.MBs
		}
		rows[i].all[f.Variant] = append(rows[i].all[f.Variant], v)
	}
	return rows
}

// gain is how much better a variant is than the first one, in percent: the median over
// the turns of what it is beside the first one of the same turn.
func (r *row) gain(first, variant string) (percent float64, ok bool) {
	a, b := r.all[first], r.all[variant]
	var gains []float64
	for i := range min(len(a), len(b)) {
		if a[i] <= 0 || b[i] <= 0 {
			continue
		}
		g := 100 * (a[i] - b[i]) / a[i]
		if r.rate {
			g = 100 * (b[i] - a[i]) / a[i]
		}
		gains = append(gains, g)
	}
	if len(gains) == 0 {
		return 0, false
	}
	return Median(gains), true
}

// variantTable has a row an experiment, a column a variant with the median of the turns,
// and what each gains over the first.
func variantTable(w io.Writer, test string, figures []Figure) error {
	names := Variants(test)
	columns := []string{"experiment", "size"}
	columns = append(columns, names...)
	for _, n := range names[1:] {
		columns = append(columns, n+" gains")
	}
	var lines [][]string
	for _, r := range rowsOf(figures) {
		size := Size(r.bytes)
		if r.bytes == 0 {
			size = "mixed"
		}
		line := []string{r.op, size}
		for _, n := range names {
			cell := "-"
			if v := r.all[n]; len(v) > 0 {
				cell = fmt.Sprintf("%.2f", Median(v))
			}
			line = append(line, cell)
		}
		for _, n := range names[1:] {
			cell := "-"
			if g, ok := r.gain(names[0], n); ok {
				cell = fmt.Sprintf("%+.1f %%", g)
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	return textTable(w, columns, lines)
}

// variantTitles say what a test's table has.
var variantTitles = map[string]string{
	Reuse:    "Reuse of buffers: half a round trip in us, everything copied (off) and by the link's decision (auto)",
	OneSided: "Put and get with their fence: us, everything copied (off) and by the link's decision (auto)",
	Bowtie:   "BOWTIE and all-to-all: us a round, by rendezvous protocol",
	Channels: "Eager channels: half a round trip in us, and MB/s of large messages",
}
