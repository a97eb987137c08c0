package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// processes prints the processor time and the context switches of the sidecars. A message
// within a pod counts once, and a message between pods in both.
func processes(w io.Writer, all []obs.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	rows := 0
	for i := range all {
		p := &all[i].Process
		if *p == (obs.Process{}) {
			continue
		}
		if rows++; rows == 1 {
			_, _ = fmt.Fprintf(w, "\nSidecars: processor time in seconds, and context switches\n") // Flush returns write errors
			_, _ = fmt.Fprintf(t, "pod\tprocessor\tasleep\tanother ran\tmessages\tswitches per message\t\n")
		}
		messages, each := all[i].Messages(), "-"
		if messages > 0 {
			each = fmt.Sprintf("%.2f", float64(p.Waits+p.Yields)/float64(messages))
		}
		_, _ = fmt.Fprintf(t, "%d\t%.2f\t%d\t%d\t%d\t%s\t\n", all[i].Pod, p.Seconds, p.Waits, p.Yields, messages, each)
	}
	return t.Flush()
}
