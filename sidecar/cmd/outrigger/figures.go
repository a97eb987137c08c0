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
this engine's protocols, in virtual time: on cost models of the machines that the
papers measured on, made of what the papers state about them. It prints a table of
the papers' values and ours, and writes a page with plots and with every number of
the models beside its source. Results do not depend on this machine.
docs/reuse.md explains the models.`,
		Example: `  outrigger figures -o out/          # as many repetitions as the papers: minutes
  outrigger figures --quick -o out/  # enough for a look`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir != "" { // before the minutes that the figures take
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return fmt.Errorf("folder of the figures: %w; -o names a folder, which is made where you may write", err)
				}
			}
			effort := figures.Full()
			if quick {
				effort = figures.Quick()
			}
			r, err := calculated(cmd.Context(), effort, func(part string) { cmd.PrintErrln("outrigger:", part) })
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
				return fmt.Errorf("%w; the table above is complete, and -o takes another folder", err)
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

// calculated runs the experiments until they are done or the program is interrupted.
// Virtual time has no place to stop at: what is left of it ends with the process.
func calculated(ctx context.Context, e figures.Effort, tell func(string)) (*figures.Report, error) {
	var report *figures.Report
	done := make(chan error, 1)
	go func() {
		r, err := figures.Run(e, tell)
		report = r
		done <- err
	}()
	select {
	case err := <-done:
		return report, err
	case <-ctx.Done():
		return nil, errors.New("interrupted: no figure is written; --quick takes seconds")
	}
}
