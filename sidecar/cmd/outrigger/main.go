// Command outrigger is the command line of Outrigger. It runs jobs on this machine, as
// programs or from a manifest, measures the engine, and shows what running jobs do.
//
// Each subcommand has a file of its own, which defines its flags and calls the package
// that does the work: jobrun for jobs, manifest for MPIJobs, bench and figures for
// measurements, top, why and trace for running and recorded jobs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

func main() { os.Exit(execute()) }

func execute() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	// SIGPIPE: if the reader of the output has exited, as behind `| head`, the job is
	// ended and cleaned up as on Ctrl-C.
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE} {
		if !signal.Ignored(s) { // nohup ignores SIGHUP
			signal.Notify(signals, s)
		}
	}
	go func() {
		cancel(endedBy(<-signals))
		for s := range signals {
			if s == unix.SIGINT || s == unix.SIGQUIT || s == unix.SIGTERM {
				close(atOnce)
				return
			}
		}
	}()
	root := &cobra.Command{
		Use:   "outrigger",
		Short: "run, measure and watch Outrigger jobs",
		Long: `Outrigger does the communication of HPC applications in a sidecar next to them.
This program runs a job on this machine as a cluster would, with one sidecar for
each pod; it needs no cluster, no RDMA and no privileges.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(commands()...)
	root.SetFlagErrorFunc(flagError)
	args := replaceNP(os.Args[1:])
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if _, _, unknown := root.Find(args); unknown != nil {
		err = noCommand(root, args)
	}
	if err != nil {
		outlet.WriteLast(os.Stderr, fmt.Sprintln("outrigger:", err)) // without an endless wait for a reader: the exit code follows
		var f *jobrun.Failure
		if errors.As(err, &f) {
			return exitCode(f.Code)
		}
		return 1
	}
	return 0
}

// atOnce is closed by the second signal that asks for the end of the job: the job's ranks
// are then killed without a grace period.
var atOnce = make(chan struct{})

// exitCode returns the exit code of this process for a failure with code: the low eight
// bits, or 1 if they are 0. An abort may have chosen any number.
func exitCode(code int) int {
	if code&0xff == 0 {
		return 1
	}
	return code & 0xff
}

// endedBy returns the failure of a job that was ended by a signal, with the exit code that
// a shell gives it.
func endedBy(s os.Signal) *jobrun.Failure {
	number, _ := s.(syscall.Signal) // each signal on Linux is a syscall.Signal
	text := "ended by " + unix.SignalName(number)
	switch number {
	case unix.SIGINT:
		text = "interrupted"
	case unix.SIGPIPE:
		text = "the reader of its output has exited"
	}
	return &jobrun.Failure{Text: text, Code: 128 + int(number)}
}

func commands() []*cobra.Command {
	return []*cobra.Command{runCommand(), benchCommand(), rankCommand(), topCommand(), whyCommand(), traceCommand(), figuresCommand(), convertCommand(), imageCommand(), versionCommand()}
}
