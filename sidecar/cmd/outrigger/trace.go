package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

func traceCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "trace FILE",
		Short: "check a timeline and summarize it",
		Long: `trace reads a timeline that outrigger run --trace has written, checks that Perfetto
and chrome://tracing can draw it (Chrome's trace event format: slices nest, arrows have
two ends), and prints a summary. It computes the times of the ranks from the slices;
outrigger run --report prints the times that the sidecars measured.`,
		Example: `  outrigger run -n 4 --pods 2 --trace cg.json -- bin/npb -class S cg
  outrigger trace cg.json        # and open it at https://ui.perfetto.dev`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			f := new(trace.File)
			if err := json.Unmarshal(raw, f); err != nil {
				return fmt.Errorf("%s is no trace: %w", args[0], plainJSON(raw, err))
			}
			if err := f.Check(); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return describeTrace(cmd.OutOrStdout(), f)
		},
	}
}

// plainJSON returns an error of encoding/json without the terms of Go.
func plainJSON(raw []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case len(raw) == 0:
		return errors.New("it is empty")
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(raw)):
		return fmt.Errorf("it is incomplete, %s: the program that wrote or copied it was stopped", memory.Text(uint64(len(raw))))
	case errors.As(err, &syntax):
		return fmt.Errorf("byte %d is not valid JSON", syntax.Offset)
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("it is a JSON %s: want an object with traceEvents, as outrigger run --trace writes it", kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("its field %s is a JSON %s, which outrigger run --trace does not write", kind.Field, kind.Value)
	}
	return err
}

func describeTrace(w io.Writer, f *trace.File) error {
	c := f.Counts()
	_, _ = fmt.Fprintf(w, "%d calls, %d ends of messages (%d local, %d between pods), %d arrows, %d turns of %d engines; %d older events were dropped\n\n",
		c.Calls, c.Local+c.Remote, c.Local, c.Remote, c.Arrows, c.Turns, f.Other.Pods, f.Other.Lost) // Flush reports a broken output
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "rank\tin calls, s\twaiting, s\t")
	for _, rank := range c.Ranks {
		in, waiting := f.Sums(rank)
		_, _ = fmt.Fprintf(t, "%d\t%.6f\t%.6f\t\n", rank, in, waiting)
	}
	return t.Flush()
}
