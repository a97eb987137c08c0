package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// times prints the ranks' calls and how they spent their time.
func times(w io.Writer, all []obs.Report) error {
	var ranks []trace.Summary
	for _, r := range all {
		ranks = append(ranks, r.Times...)
	}
	if len(ranks) == 0 {
		return nil
	}
	slices.SortFunc(ranks, func(a, b trace.Summary) int { return cmp.Compare(a.Rank, b.Rank) })
	_, _ = fmt.Fprintf(w, "\nCalls of the ranks\n") // Flush returns write errors
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "call\tcalls\tbytes\t\n")
	for _, c := range called(ranks) {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t\n", c.Name, c.Calls, Size(c.Bytes))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(ranks) <= textRanks {
		_, _ = fmt.Fprintf(w, "\nTime of the ranks in seconds: at least one call open, and of it one that ends by another rank's doing\n")
		t = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		_, _ = fmt.Fprintf(t, "rank\tattached\tin calls\twaiting\t\n")
		for _, r := range ranks {
			_, _ = fmt.Fprintf(t, "%d\t%.3f\t%.3f\t%.3f\t\n", r.Rank, r.Seconds, r.InCalls, r.Waiting)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for i, x := range trace.Longest(ranks) {
		if i == 0 {
			_, _ = fmt.Fprintf(w, "\nLongest waits\n")
		}
		with := ""
		if x.Peer >= 0 {
			with = fmt.Sprintf(" with rank %d", x.Peer)
		}
		_, _ = fmt.Fprintf(w, "  rank %d: %s%s, %.3f s\n", x.Rank, x.Call, with, x.Seconds)
	}
	return served(w, ranks)
}

// served prints the ranks whose windows need their process: those with the most accesses.
func served(w io.Writer, ranks []trace.Summary) error {
	list := slices.DeleteFunc(slices.Clone(ranks), func(r trace.Summary) bool { return r.Served == 0 })
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b trace.Summary) int { return cmp.Compare(b.Served, a.Served) })
	more := ""
	if len(list) > textRanks {
		more = fmt.Sprintf(", the %d of %d ranks with the most", textRanks, len(list))
		list = list[:textRanks]
	}
	_, _ = fmt.Fprintf(w, "\nAccesses to windows that the process of their rank has carried out, and no sidecar%s\n", more)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "rank\taccesses\t\n")
	for _, r := range list {
		_, _ = fmt.Fprintf(t, "%d\t%d\t\n", r.Rank, r.Served)
	}
	return t.Flush()
}

// called adds up the calls of all ranks by name.
func called(ranks []trace.Summary) []trace.Calls {
	var list []trace.Calls
	for _, r := range ranks {
		for _, c := range r.Calls {
			i := slices.IndexFunc(list, func(x trace.Calls) bool { return x.Name == c.Name })
			if i < 0 {
				i, list = len(list), append(list, trace.Calls{Name: c.Name})
			}
			list[i].Calls += c.Calls
			list[i].Bytes += c.Bytes
		}
	}
	return list
}
