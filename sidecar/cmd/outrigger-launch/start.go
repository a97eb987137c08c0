package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/mpi"
)

// startCommandName is a pod's part of a program that brings its own mpirun.
const startCommandName = "mpirun"

// startCommand is what this program runs instead of ranks, below itself.
func startCommand(code *int) *cobra.Command {
	var socket, family string
	cmd := &cobra.Command{
		Use:    startCommandName + " --socket PATH --mpi FAMILY -- PROGRAM [ARGS]",
		Short:  "run a program that calls mpirun: once, in the first pod, and its daemons in all",
		Hidden: true, // outrigger-launch does it by itself
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
			// The launcher's signals are passed on to mpirun: it says what becomes of them.
			passed := make(chan os.Signal, 8)
			signal.Notify(passed, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
			s.Signals = passed
			notices := make(chan os.Signal, 8) // which reach this process alone
			signal.Notify(notices, unix.SIGUSR1, unix.SIGUSR2)
			s.Notices = notices
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
