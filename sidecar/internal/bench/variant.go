package bench

import (
	"fmt"
	"io"
	"slices"
)

// row is one experiment of a test with variants.
type row struct {
	op    string
	bytes int
	rate  bool                 // the values are in MB/s, and more is better; otherwise they are in us
	all   map[string][]float64 // values by variant, one for each turn
}

// rowsOf groups figures into rows, in the order in which they first appear.
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

// gain returns how much better a variant is than the first one, in per cent: the median
// of the gains over the first one of the same turn.
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

// variantTable writes a row for each experiment, with the median of the turns of each
// variant, and its gain over the first.
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

// variantTitles are the titles of the tables, by test.
var variantTitles = map[string]string{
	Reuse:    "Reuse of buffers: half a round trip in us, everything copied (off) and by the link's decision (auto)",
	OneSided: "Put and get with their fence: us, everything copied (off) and by the link's decision (auto)",
	Bowtie:   "BOWTIE and all-to-all: us a round, by rendezvous protocol",
	Channels: "Eager channels: half a round trip in us, and MB/s of large messages",
}
