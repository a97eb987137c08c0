// Package report prints what a job has communicated: by protocol, and from rank to rank.
package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// Matrix has the traffic between ranks.
type Matrix struct {
	Ranks    int
	Messages [][]uint64 // message counts, indexed by source and then by destination
	Bytes    [][]uint64
}

// Merge adds up the sidecars' reports.
func Merge(all []obs.Report) (protocols []obs.Protocol, m *Matrix) {
	m = new(Matrix)
	for _, r := range all {
		m.Ranks = max(m.Ranks, r.Ranks)
	}
	m.Messages, m.Bytes = make([][]uint64, m.Ranks), make([][]uint64, m.Ranks)
	for i := range m.Ranks {
		m.Messages[i], m.Bytes[i] = make([]uint64, m.Ranks), make([]uint64, m.Ranks)
	}
	for _, r := range all {
		for _, p := range r.Protocols {
			i := slices.IndexFunc(protocols, func(q obs.Protocol) bool { return q.Name == p.Name })
			if i < 0 {
				i = len(protocols)
				protocols = append(protocols, obs.Protocol{Name: p.Name})
			}
			protocols[i].Messages += p.Messages
			protocols[i].Bytes += p.Bytes
		}
		for _, c := range r.Cells {
			if c.Src < uint64(m.Ranks) && c.Dst < uint64(m.Ranks) {
				m.Messages[c.Src][c.Dst] += c.Messages
				m.Bytes[c.Src][c.Dst] += c.Bytes
			}
		}
	}
	return protocols, m
}

// textRanks is the largest number of ranks whose matrix is printed as text.
const textRanks = 32

// Show prints the report and, when plots names a directory, draws the matrix.
func Show(w io.Writer, all []obs.Report, plots string) error {
	protocols, m := Merge(all)
	if err := times(w, all); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(w, "\nWhat carried it: messages by protocol, those of collectives too\n") // Flush returns write errors
	_, _ = fmt.Fprintf(t, "protocol\tmessages\tbytes\t\n")
	for _, p := range protocols {
		// Collectives are calls; the messages that carry them are in the other lines.
		if p.Messages > 0 && p.Name != "collective" {
			_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t\n", p.Name, p.Messages, Size(p.Bytes))
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := collectives(w, all); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if text := paths(all); text != "" {
		_, _ = fmt.Fprintf(w, "\n%s\n", text)
	}
	if text := largePaths(all); text != "" {
		_, _ = fmt.Fprintf(w, "\n%s\n", text)
	}
	if text := exposed(all); text != "" {
		_, _ = fmt.Fprintf(w, "\n%s\n", text)
	}
	if text := copies(all); text != "" {
		_, _ = fmt.Fprintf(w, "\n%s\n", text)
	}
	if err := buffers(w, all); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := processes(w, all); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if m.Ranks <= textRanks {
		if err := m.print(w); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if text := unseen(all); text != "" {
		_, _ = fmt.Fprintf(w, "\n%s\n", text)
	}
	if plots == "" {
		return nil
	}
	path, err := m.Plot(plots)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = fmt.Fprintf(w, "\nMatrix drawn in %s\n", path)
	return err
}

// unseen names the ranks whose messages are not counted, or returns an empty text.
func unseen(all []obs.Report) string {
	var ranks []int
	for i := range all {
		for j := range all[i].Waits {
			if r := &all[i].Waits[j]; r.Local {
				ranks = append(ranks, r.Rank)
			}
		}
	}
	if len(ranks) == 0 {
		return ""
	}
	return fmt.Sprintf("Messages within the pods of %s are not counted: their MPI carries them by shared memory of its own (MPICH).", why.Names(ranks))
}

// paths describes how many bytes have left the pods by each path, or returns an empty text
// if their link has one path.
func paths(all []obs.Report) string {
	var names []string
	bytes := map[string]uint64{}
	for i := range all {
		for _, p := range all[i].Paths {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
			bytes[p.Name] += p.Out
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s by %s", Size(bytes[name]), name)
	}
	if len(names) == 0 {
		return ""
	}
	return "between pods: " + strings.Join(names, ", ")
}

// largePaths describes by which path large payloads have come from how many peers, and the median
// of the rates that were measured, or returns an empty text if the pods have not compared paths.
func largePaths(all []obs.Report) string {
	var names []string
	peers, rates := map[string]int{}, map[string][]uint64{}
	for i := range all {
		for _, p := range all[i].Paths {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
			if peers[p.Name] += p.Peers; p.Rate > 0 {
				rates[p.Name] = append(rates[p.Name], p.Rate)
			}
		}
	}
	var chosen, measured []string
	for _, name := range names {
		if n := peers[name]; n > 0 {
			chosen = append(chosen, fmt.Sprintf("%s from %d", name, n))
		}
		if list := rates[name]; len(list) > 0 {
			slices.Sort(list)
			measured = append(measured, fmt.Sprintf("%s %.3g GB/s", name, float64(list[len(list)/2])/1e9))
		}
	}
	if len(chosen) == 0 {
		return ""
	}
	text := "large payloads, by pod and peer: " + strings.Join(chosen, ", ")
	if len(measured) > 0 {
		text += " (" + strings.Join(measured, " against ") + ")"
	}
	return text
}

// exposed describes the operations on memory that ranks have registered themselves, or
// returns an empty text if there were none.
func exposed(all []obs.Report) string {
	var c link.LentCounts
	for i := range all {
		c.Add(&all[i].Exposed)
	}
	if c == (link.LentCounts{}) {
		return ""
	}
	return ExposedText(&c)
}

// ExposedText describes such operations in a line.
func ExposedText(c *link.LentCounts) string {
	return fmt.Sprintf("exposed memory: %d reads by the device, %s, %d queue pairs, %d of them failed", c.Reads, Size(c.Bytes), c.Pairs, c.Faults)
}

// buffers prints what was copied and what was gathered, if a link chose.
func buffers(w io.Writer, all []obs.Report) error {
	var rows []obs.Buffers
	for _, r := range all {
		rows = append(rows, r.Buffers...)
	}
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, func(a, b obs.Buffers) int { return cmp.Compare(a.Rank, b.Rank) })
	_, _ = fmt.Fprintf(w, "\nBuffers that were sent from\n") // Flush returns write errors
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "rank\tseen\tfrequent\tregistrations\tpinned\tcopied\tnot copied\tmore are watched\t\n")
	for _, b := range rows {
		watched := "yes"
		if b.Stopped {
			watched = "no"
		}
		_, _ = fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t\n", b.Rank, b.Seen, b.Frequent, b.Registered,
			Size(b.PinnedBytes), Size(b.CopiedBytes), Size(b.GatheredBytes), watched)
	}
	return t.Flush()
}

func (m *Matrix) print(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "\nSent from rank (row) to rank (column): messages, bytes\n") // Flush returns write errors
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(t, "\t")
	for d := range m.Ranks {
		_, _ = fmt.Fprintf(t, "%d\t", d)
	}
	_, _ = fmt.Fprintln(t)
	for s := range m.Ranks {
		_, _ = fmt.Fprintf(t, "%d\t", s)
		for d := range m.Ranks {
			if m.Messages[s][d] == 0 {
				_, _ = fmt.Fprint(t, "-\t")
			} else {
				_, _ = fmt.Fprintf(t, "%d, %s\t", m.Messages[s][d], Size(m.Bytes[s][d]))
			}
		}
		_, _ = fmt.Fprintln(t)
	}
	return t.Flush()
}

// Size formats a number of bytes.
func Size(n uint64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 10<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
