package report

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// collectives prints the algorithms that have served the ranks' collectives, if there were any.
func collectives(w io.Writer, all []obs.Report) error {
	var rows []obs.Collective
	for i := range all {
		for _, c := range all[i].Collectives {
			at := slices.IndexFunc(rows, func(r obs.Collective) bool { return r.Collective == c.Collective && r.Algorithm == c.Algorithm })
			if at < 0 {
				rows = append(rows, c)
				continue
			}
			rows[at].Calls += c.Calls
		}
	}
	if len(rows) == 0 {
		return nil
	}
	_, _ = fmt.Fprintf(w, "\nCollectives: calls of ranks by algorithm\n") // Flush returns write errors
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "collective\talgorithm\tcalls\t\n")
	for _, r := range rows {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t\n", r.Collective, r.Algorithm, r.Calls)
	}
	return t.Flush()
}
