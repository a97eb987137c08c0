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

// Class returns the CSS class of a row.
func (r Row) Class() string {
	switch {
	case !r.Runs():
		return "later"
	case r.Near():
		return "near"
	}
	return "far"
}

// TheirText returns the paper's value, with <= before a bound.
func (r Row) TheirText() string {
	if r.Bound {
		return fmt.Sprintf("≤ %.4g", r.Theirs)
	}
	return fmt.Sprintf("%.4g", r.Theirs)
}

// OurText returns this engine's value.
func (r Row) OurText() string {
	if !r.Runs() {
		return "cannot run yet"
	}
	return fmt.Sprintf("%.3g", r.Ours)
}

// RatioText returns the ratio, if it is meaningful.
func (r Row) RatioText() string {
	if !r.Runs() || r.Bound || r.Theirs == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", r.Ratio())
}

// ordering is the unit of rows that say which of two is better, and not by how much.
const ordering = "1 = yes"

// Count counts the rows by their comparison.
type Count struct {
	Near, Far, Later int // values: within a third of the paper's, not, and not run yet
	Held, Orderings  int // rows that say which of two is better: those that hold, and all
}

// Values returns the number of values.
func (c Count) Values() int { return c.Near + c.Far + c.Later }

// Count counts all rows.
func (r *Report) Count() (c Count) {
	for i := range r.Rows {
		x := &r.Rows[i]
		class := x.Class()
		switch {
		case x.Unit == ordering:
			c.Orderings++
			if class == "near" {
				c.Held++
			}
		case class == "near":
			c.Near++
		case class == "far":
			c.Far++
		default:
			c.Later++
		}
	}
	return c
}

func (r *Report) page(w io.Writer) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, struct {
		*Report
		Count
		Models []*platform.Model
	}{r, r.Count(), platform.All()})
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
	c := r.Count()
	_, err := fmt.Fprintf(w, "\nOf %d values %d are within a third of the paper's, %d are not, %d cannot run yet. Of %d orderings %d hold.\n",
		c.Values(), c.Near, c.Far, c.Later, c.Orderings, c.Held)
	return err
}
