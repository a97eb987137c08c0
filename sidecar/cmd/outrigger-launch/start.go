package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/mpi"
)

// startCommandName is the subcommand that runs this pod's part of a program with its own
// mpirun.
const startCommandName = "mpirun"

// startCommand returns the subcommand that the launcher starts, as a child process, in place
// of the ranks.
func startCommand(code *int) *cobra.Command {
	var socket, family string
	cmd := &cobra.Command{
		Use:    startCommandName + " --socket PATH --mpi FAMILY -- PROGRAM [ARGS]",
		Short:  "run a program that calls mpirun once, in the first pod, and its daemons in all pods",
		Hidden: true, // only outrigger-launch calls it
		Args:   cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, program []string) error {
			f, err := mpi.Parse(family)
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			s, err := mpi.NewStarter(f, socket, self)
			if err != nil {
				return err
			}
			// mpirun decides what the launcher's signals mean.
			signals := make(chan os.Signal, 8)
			signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
			s.Signals = signals
			userSignals := make(chan os.Signal, 8) // sent to this process only, not to its group
			signal.Notify(userSignals, unix.SIGUSR1, unix.SIGUSR2)
			s.Notices = userSignals
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
			defer stop()
			*code, err = s.Run(ctx, program)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&socket, "socket", "", "the sidecar's Unix socket")
	f.StringVar(&family, "mpi", string(mpi.Auto), "the MPI of the ranks")
	return cmd
}
