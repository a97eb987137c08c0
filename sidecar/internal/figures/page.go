package figures

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"text/tabwriter"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/platform"
)

//go:embed page.html
var pageText string

// Class is how a row is coloured.
func (r Row) Class() string {
	switch {
	case !r.Runs():
		return "later"
	case r.Near():
		return "near"
	}
	return "far"
}

// TheirText is the paper's value, with <= before a bound.
func (r Row) TheirText() string {
	if r.Bound {
		return fmt.Sprintf("≤ %.4g", r.Theirs)
	}
	return fmt.Sprintf("%.4g", r.Theirs)
}

// OurText is ours.
func (r Row) OurText() string {
	if !r.Runs() {
		return "cannot run yet"
	}
	return fmt.Sprintf("%.3g", r.Ours)
}

// RatioText is ours to theirs, where that says something.
func (r Row) RatioText() string {
	if !r.Runs() || r.Bound || r.Theirs == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", r.Ratio())
}

// Count says how many rows are near, not near, and do not run.
func (r *Report) Count() (near, far, later int) {
	for i := range r.Rows {
		switch r.Rows[i].Class() {
		case "near":
			near++
		case "far":
			far++
		default:
			later++
		}
	}
	return near, far, later
}

func (r *Report) page(w io.Writer) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	near, far, later := r.Count()
	return t.Execute(w, struct {
		*Report
		Models                  []*platform.Model
		Total, Near, Far, Later int
	}{r, platform.All(), len(r.Rows), near, far, later})
}

// Table writes the rows as text.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "PAPER\tWHAT\tUNIT\tPAPER'S\tOURS\tRATIO\t")
	for i := range r.Rows {
		x := &r.Rows[i]
		mark := ""
		if x.Class() == "far" {
			mark = "not within a third"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", x.Paper, x.What, x.Unit, x.TheirText(), x.OurText(), x.RatioText(), mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	near, far, later := r.Count()
	_, err := fmt.Fprintf(w, "\n%d of %d within a third of the paper's, %d not, %d cannot run yet.\n", near, len(r.Rows), far, later)
	return err
}
