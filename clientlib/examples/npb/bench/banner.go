package bench

import (
	"fmt"
	"io"
	"strings"
)

// The two verdicts, as NPB prints them. Scripts compare them.
const (
	Successful = "VERIFICATION SUCCESSFUL"
	Failed     = "VERIFICATION FAILED"
)

// WriteHeader announces a run before it starts.
func WriteHeader(w io.Writer, benchmark string, class Class, ranks int) error {
	_, err := fmt.Fprintf(w, "\n NAS Parallel Benchmarks (Outrigger, Go) -- %s Benchmark\n\n"+
		" Class: %s\n Number of ranks: %d\n\n", benchmark, class, ranks)
	return err
}

// WriteReport writes the verdict and the table that NPB ends a run with.
func WriteReport(w io.Writer, r Result) error {
	var b strings.Builder
	writeVerdict(&b, r)
	row := func(name, format string, value any) {
		fmt.Fprintf(&b, " %-16s= %24s\n", name, fmt.Sprintf(format, value))
	}
	fmt.Fprintf(&b, "\n %s Benchmark Completed.\n", r.Benchmark)
	row("Class", "%s", r.Class)
	row("Size", "%s", r.Size)
	row("Iterations", "%d", r.Iterations)
	row("Time in seconds", "%.3f", r.Seconds)
	row("Total ranks", "%d", r.Ranks)
	row("Mop/s total", "%.2f", r.Mops)
	row("Mop/s/rank", "%.2f", r.Mops/float64(r.Ranks))
	row("Operation type", "%s", r.Operation)
	verdict := "SUCCESSFUL"
	if !r.Verified {
		verdict = "UNSUCCESSFUL"
	}
	row("Verification", "%s", verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeVerdict puts the verdict alone on its line, flush left, so that a script
// can compare whole lines.
func writeVerdict(b *strings.Builder, r Result) {
	if r.Verified {
		b.WriteString(Successful + "\n")
	} else {
		b.WriteString(Failed + "\n")
	}
	for _, c := range r.Checks {
		fmt.Fprintf(b, " %-22s computed %22.14E  reference %22.14E  error %9.2E", c.Name, c.Value, c.Reference, c.Error())
		if !c.Passed() {
			fmt.Fprintf(b, "  (more than %.0E)", c.Tolerance)
		}
		b.WriteByte('\n')
	}
}
