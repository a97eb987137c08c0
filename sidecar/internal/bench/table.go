package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// column is a heading and the cells below it.
type column struct {
	name string
	cell func(Figure) string
}

func number(format string, value func(Figure) float64) func(Figure) string {
	return func(f Figure) string { return fmt.Sprintf(format, value(f)) }
}

var sizeColumn = column{"size", func(f Figure) string { return Size(f.Bytes) }}

// sections are the tables of the tests between two ranks.
var sections = []struct {
	test, title string
	columns     []column
}{
	{Self, "Self: a rank to itself, through its sidecar", []column{
		sizeColumn,
		{"us", number("%.2f", func(f Figure) float64 { return f.US })},
		{"best us", number("%.2f", func(f Figure) float64 { return f.USMin })},
	}},
	{Latency, "Latency: half a round trip", []column{
		sizeColumn,
		{"us", number("%.2f", func(f Figure) float64 { return f.US })},
		{"best us", number("%.2f", func(f Figure) float64 { return f.USMin })},
	}},
	{Bandwidth, "Bandwidth: one direction, windows of 64 messages (16 of 4 MiB)", []column{
		sizeColumn,
		{"MB/s", number("%.0f", func(f Figure) float64 { return f.MBs })},
	}},
	{Rate, "Message rate", []column{
		sizeColumn,
		{"messages/s", number("%.0f", func(f Figure) float64 { return f.MsgS })},
	}},
	{Overlap, "Overlap: how much of a transfer hides behind computing", []column{
		sizeColumn,
		{"side", func(f Figure) string { return f.Side }},
		{"computing", func(f Figure) string { return f.Mode }},
		{"hidden", func(f Figure) string { return hidden(f.Overlap) }},
		{"transfer us", number("%.1f", func(f Figure) float64 { return f.TransferUS })},
		{"computing us", number("%.1f", func(f Figure) float64 { return f.ComputeUS })},
		{"both us", number("%.1f", func(f Figure) float64 { return f.TotalUS })},
	}},
}

// fairnessColumns returns the columns of fairness; quiet is the 99.9th percentile without
// load, to which the last column is the ratio.
func fairnessColumns(quiet float64) []column {
	return []column{
		{"load", func(f Figure) string { return f.Op }},
		{"of", func(f Figure) string {
			if f.Op == LoadNone {
				return "-"
			}
			return Size(f.Bytes)
		}},
		{"round trips", func(f Figure) string { return strconv.Itoa(f.Trips) }},
		{"p50 us", number("%.1f", func(f Figure) float64 { return f.P50 })},
		{"p99.9 us", number("%.1f", func(f Figure) float64 { return f.P999 })},
		{"worst us", number("%.1f", func(f Figure) float64 { return f.MaxUS })},
		{"p99.9 : quiet", number("%.1f", func(f Figure) float64 { return f.P999 / quiet })},
	}
}

func hidden(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100**v)
}

// Table writes the figures as text, with a table for each test.
func Table(w io.Writer, all []Figure) error {
	begun := false
	title := func(text string) {
		if begun {
			_, _ = fmt.Fprintln(w) // Flush reports a broken output, here and below
		}
		begun = true
		_, _ = fmt.Fprintln(w, text)
	}
	for _, s := range sections {
		rows := ofTest(all, s.test)
		if len(rows) == 0 {
			continue
		}
		title(s.title)
		if err := table(w, s.columns, rows); err != nil {
			return err
		}
	}
	if rows := ofTest(all, Fairness); len(rows) > 0 {
		title("Fairness: round trips of 8 bytes between two ranks, under load by others of their pods")
		if err := table(w, fairnessColumns(Quiet(all)), rows); err != nil {
			return err
		}
	}
	for _, test := range Tests {
		rows := ofTest(all, test)
		if text := variantTitles[test]; text == "" || len(rows) == 0 {
			continue
		}
		title(variantTitles[test])
		if err := variantTable(w, test, rows); err != nil {
			return err
		}
	}
	rows := ofTest(all, Collectives)
	if len(rows) == 0 {
		return nil
	}
	title(fmt.Sprintf("Collectives of %d ranks: us a call, until the last rank is done", rows[0].Ranks))
	return collectiveTable(w, rows)
}

func ofTest(all []Figure, test string) []Figure {
	var rows []Figure
	for _, f := range all {
		if f.Test == test {
			rows = append(rows, f)
		}
	}
	return rows
}

func table(w io.Writer, columns []column, rows []Figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range columns {
		_, _ = fmt.Fprint(t, c.name, "\t")
	}
	for _, r := range rows {
		_, _ = fmt.Fprintln(t)
		for _, c := range columns {
			_, _ = fmt.Fprint(t, c.cell(r), "\t")
		}
	}
	_, _ = fmt.Fprintln(t)
	return t.Flush()
}

// textTable writes headings and the lines below them.
func textTable(w io.Writer, columns []string, lines [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range append([][]string{columns}, lines...) {
		for _, cell := range line {
			_, _ = fmt.Fprint(t, cell, "\t") // Flush reports a broken output
		}
		_, _ = fmt.Fprintln(t)
	}
	return t.Flush()
}

// collectiveTable writes a row for each size and a column for each operation.
func collectiveTable(w io.Writer, figures []Figure) error {
	var sizes []int
	var ops []string
	cells := map[string]map[int]string{}
	for _, f := range figures {
		if !slices.Contains(ops, f.Op) {
			ops = append(ops, f.Op)
			cells[f.Op] = map[int]string{}
		}
		if !slices.Contains(sizes, f.Bytes) {
			sizes = append(sizes, f.Bytes)
		}
		cells[f.Op][f.Bytes] = fmt.Sprintf("%.1f", f.US)
	}
	slices.Sort(sizes)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(t, "size\t") // Flush reports a broken output
	for _, op := range ops {
		_, _ = fmt.Fprint(t, op, "\t")
	}
	for _, n := range sizes {
		_, _ = fmt.Fprintf(t, "\n%s\t", Size(n))
		for _, op := range ops {
			_, _ = fmt.Fprint(t, cmp.Or(cells[op][n], "-"), "\t")
		}
	}
	_, _ = fmt.Fprintln(t)
	return t.Flush()
}
