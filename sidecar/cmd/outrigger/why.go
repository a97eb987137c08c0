package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
)

func whyCommand() *cobra.Command {
	namespace := ""
	cmd := &cobra.Command{
		Use:   "why [JOB] [flags]",
		Short: "say what the ranks of a running job wait for",
		Long: `why asks the sidecars of your jobs on this machine what their ranks wait for, and
says it in a line for each rank, or for ranks that wait alike: the oldest request
and since when, and the messages that are there and that nobody has asked for.
What is wrong by itself comes first: ranks that wait for each other, ranks in
different collectives, ranks that wait for one which has left. JOB is a job's name,
the process number of its outrigger run, its directory or the beginning of its id.
A job ended by --timeout, or by Ctrl-C while all its ranks wait, says the same.

A rank that waits for no message computes, reads a file, or waits for something
that Outrigger does not know of.

With -n it explains an MPIJob on the cluster that kubectl reaches, by the API
server's proxy to its pods: who may use that may ask. Sidecars whose metrics are
for their pods alone (sidecar.metrics=Loopback) cannot be asked so.`,
		Example: `  outrigger why             # all jobs of yours on this machine
  outrigger why npb         # one
  outrigger why -n hpc cg   # MPIJob cg in namespace hpc`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			job := ""
			if len(args) == 1 {
				job = args[0]
			}
			if namespace != "" {
				if job == "" {
					return errors.New("of which MPIJob? outrigger why -n NAMESPACE JOB")
				}
				return explainOnCluster(cmd.Context(), cmd.OutOrStdout(), namespace, job)
			}
			return explainJobs(cmd.Context(), cmd.OutOrStdout(), job)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "explain an MPIJob of this namespace, by kubectl")
	return cmd
}

// explainJobs explains the jobs that job names, or all.
func explainJobs(ctx context.Context, out io.Writer, job string) error {
	entries, err := jobrun.Jobs()
	if err != nil {
		return err
	}
	if job != "" {
		entries = slices.DeleteFunc(entries, func(e jobrun.Entry) bool { return !e.Is(job) })
	}
	if len(entries) == 0 {
		if job == "" {
			return errors.New("no job of yours runs on this machine")
		}
		return fmt.Errorf("no job of yours is %q: `outrigger top` lists those that run", job)
	}
	var errs []error
	for i, e := range entries {
		if len(entries) > 1 {
			if i > 0 {
				_, _ = fmt.Fprintln(out)
			}
			_, _ = fmt.Fprintf(out, "job %s:\n", e.Name)
		}
		ranks, err := jobrun.Why(ctx, e.Metrics)
		if err != nil {
			errs = append(errs, err)
		}
		for _, line := range why.Explain(ranks) {
			_, _ = fmt.Fprintln(out, line)
		}
	}
	return errors.Join(errs...)
}
