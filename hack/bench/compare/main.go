// Command compare renders the figures of a benchmark run as Markdown and judges
// them against Outrigger's targets.
//
// It reads JSON lines (the schema is in hack/bench/mpibench.c, "Output") from
// standard input. A figure that appears several times, because the run had
// several rounds, counts with its median. Exit status: 0 when every figure that
// a target needs is there, whether or not the target is met; 1 when one is
// missing or a line is malformed; with -strict also 1 when a target is missed.
//
// With -before FILE -after FILE it compares two programs that took the same figures
// by turns (hack/bench/versus.sh).
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	strict := flag.Bool("strict", false, "exit with 1 when a target is missed")
	before := flag.String("before", "", "compare the figures of -after with those of this `file`")
	after := flag.String("after", "", "see -before")
	flag.Parse()
	if err := run(*strict, *before, *after); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(strict bool, before, after string) error {
	if before != "" || after != "" {
		return versus(os.Stdout, before, after)
	}
	figures, err := readFigures(os.Stdin)
	if err != nil {
		return err
	}
	verdicts := judge(figures)
	if err := render(os.Stdout, figures, verdicts); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	missed, absent := count(verdicts)
	switch {
	case absent > 0:
		return fmt.Errorf("%d of %d targets have no figure: see ABSENT in the table and run the peer that is named there", absent, len(verdicts))
	case strict && missed > 0:
		return fmt.Errorf("%d of %d targets are missed", missed, len(verdicts))
	}
	return nil
}
