package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/figures"
)

func figuresCommand() *cobra.Command {
	var dir string
	var quick bool
	cmd := &cobra.Command{
		Use:   "figures",
		Short: "run the papers' experiments in virtual time",
		Long: `outrigger figures runs the experiments of the papers that Outrigger implements, with
this engine's protocols, in virtual time, on cost models of the papers' machines. The
models use only values that the papers state. It prints a table of the papers' values
and ours, and writes a page with plots and with every number of the models and its
source. Results do not depend on this machine.
docs/reuse.md explains the models.`,
		Example: `  outrigger figures -o out/          # as many repetitions as the papers: minutes
  outrigger figures --quick -o out/  # fewer repetitions: seconds`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir != "" { // before the minutes that the figures take
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return fmt.Errorf("folder of the figures: %w; give -o a folder that you may create or write to", err)
				}
			}
			effort := figures.Full()
			if quick {
				effort = figures.Quick()
			}
			r, err := calculate(cmd.Context(), effort, func(part string) { cmd.PrintErrln("outrigger:", part) })
			if err != nil {
				return err
			}
			if err := r.Table(cmd.OutOrStdout()); err != nil {
				return err
			}
			if dir == "" {
				return nil
			}
			if err := r.Write(dir); err != nil {
				return fmt.Errorf("%w; the table above is complete; give -o another folder", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "page:", filepath.Join(dir, "index.html"))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&dir, "out", "o", "", "folder for the page and its plots; empty: only the table")
	f.BoolVar(&quick, "quick", false, "fewer repetitions: seconds instead of minutes")
	return cmd
}

// calculate runs the experiments until they are complete or the program is interrupted. A
// calculation cannot be cancelled: if it is interrupted, it ends with the process.
func calculate(ctx context.Context, e figures.Effort, report func(part string)) (*figures.Report, error) {
	var result *figures.Report
	done := make(chan error, 1)
	go func() {
		r, err := figures.Run(e, report)
		result = r
		done <- err
	}()
	select {
	case err := <-done:
		return result, err
	case <-ctx.Done():
		return nil, errors.New("interrupted: no figure is written; --quick takes seconds")
	}
}
