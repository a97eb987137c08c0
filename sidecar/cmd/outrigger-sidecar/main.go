// Command outrigger-sidecar is the daemon that runs next to an application: it owns the
// network and runs the messaging engine for the ranks of one pod.
//
// A sidecar is first starting: its sockets for ranks, launcher and metrics are open, and it
// waits for what it needs from outside of the pod, such as a certificate (start.go). It is
// then ready and serves until it is told to end, and drains: it delivers the messages of
// its ranks and ends (serve.go, drain.go). If another sidecar of the same pod had joined
// the job before, it refuses the ranks instead (refuse.go). The daemon type connects the
// packages that do the work: engine, session, peers, pmi and obs.
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
the bootstrap document gives for this pod. On SIGTERM it delivers the messages that its
ranks have sent, takes leave of its peers, for at most --drain, and ends. The exit code
is 78 if the job requires a transport that this pod does not have, 1 for any other
failure.`,
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
