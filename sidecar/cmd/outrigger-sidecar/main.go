// Command outrigger-sidecar is the daemon beside an application: it owns the
// network and runs the messaging engine for the ranks of one pod.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	var o options
	cmd := &cobra.Command{
		Use:   "outrigger-sidecar --bootstrap FILE --pod N --socket PATH",
		Short: "Outrigger's daemon: the messaging engine of one pod",
		Long: `outrigger-sidecar runs the messaging engine for the ranks of one pod. Applications
attach on its Unix socket; other sidecars of the job connect to the address that
the bootstrap document gives for this pod. It ends on SIGTERM.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.bootstrap, "bootstrap", "", "the job document (required)")
	f.IntVar(&o.pod, "pod", -1, "number of this pod in the document (required)")
	f.StringVar(&o.socket, "socket", "", "Unix socket for applications (required)")
	f.StringVar(&o.listen, "listen", "", "address to listen on for other sidecars, or fd:N for a listening socket that was inherited (default: the document's address)")
	f.StringVar(&o.metrics, "metrics", "", "serve metrics, health and report here: unix:PATH or HOST:PORT")
	f.StringVar(&o.flight, "flight", "", "write the flight recorder to this file when the job fails")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.UintSliceVar(&o.uids, "app-uid", nil, "users that may attach besides the sidecar's own and root")
	for _, name := range []string{"bootstrap", "pod", "socket"} {
		_ = cmd.MarkFlagRequired(name) // the flags exist
	}
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "outrigger-sidecar:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}
