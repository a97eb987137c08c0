// Command outrigger is what a person types: it runs jobs on this machine,
// measures the engine, and watches jobs that run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
)

func main() { os.Exit(execute()) }

func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:   "outrigger",
		Short: "run, measure and watch Outrigger jobs",
		Long: `Outrigger does the communication of HPC applications in a sidecar beside them.
This program runs a job on this machine as a cluster would, with one sidecar for
each pod; it needs no cluster, no RDMA and no privileges.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(commands()...)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "outrigger:", err)
		var f *jobrun.Failure
		if errors.As(err, &f) {
			return f.Code
		}
		return 1
	}
	return 0
}

func commands() []*cobra.Command {
	return []*cobra.Command{runCommand(), benchCommand(), rankCommand(), topCommand(), versionCommand()}
}
