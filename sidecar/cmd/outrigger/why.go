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
		Short: "print what the ranks of a running job wait for",
		Long: `why asks the sidecars of your jobs on this machine what their ranks wait for, and
prints a line for each rank, or for each group of ranks that wait alike: the oldest
request and its age, and the messages that have arrived and match no receive.
Certain errors come first: ranks that wait for each other, ranks in different
collectives, ranks that wait for a rank that has left. JOB is a job's name, the
process number of its outrigger run, its directory or the beginning of its id. A job
that is ended by --timeout, or by Ctrl-C while all its ranks wait, prints the same.

A rank that waits for no message computes, reads a file, or waits for something
unknown to Outrigger.

With -n it explains an MPIJob on the cluster that kubectl reaches. It uses the API
server's proxy to the pods, and needs the permission for that. It cannot ask sidecars
that serve metrics only inside their pod (sidecar.metrics=Loopback).`,
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
					return errors.New("-n without an MPIJob: want `outrigger why -n NAMESPACE JOB`")
				}
				return explainOnCluster(cmd.Context(), cmd.OutOrStdout(), namespace, job)
			}
			return explainJobs(cmd.Context(), cmd.OutOrStdout(), job)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "explain an MPIJob of this namespace, by kubectl")
	return cmd
}

// explainJobs prints what the ranks of the jobs that job names wait for; "" means all jobs.
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
		return fmt.Errorf("no job of yours is %q: `outrigger top` lists the running jobs", job)
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
