// Command outrigger-sidecar is the daemon beside an application: it owns the
// network and runs the messaging engine for the ranks of one pod.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func main() { os.Exit(profiled(execute)) }

func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGQUIT, unix.SIGTERM)
	defer stop()
	var o options
	cmd := &cobra.Command{
		Use:   "outrigger-sidecar --bootstrap FILE --pod N --socket PATH",
		Short: "Outrigger's daemon: the messaging engine of one pod",
		Long: `outrigger-sidecar runs the messaging engine for the ranks of one pod. Applications
attach on its Unix socket; other sidecars of the job connect to the address that
the bootstrap document gives for this pod. On SIGTERM it delivers what its ranks
have sent and says goodbye, for at most --drain, and ends. The exit code is 78 when
the job requires a transport that this pod has not, 1 for any other failure.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), &o) },
	}
	o.flags(cmd)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "outrigger-sidecar:", err)
		if errors.Is(err, errTransport) {
			return exitConfig
		}
		return 1
	}
	return 0
}
