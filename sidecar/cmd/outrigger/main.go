// Command outrigger is what a person types: it runs jobs on this machine,
// measures the engine, and watches jobs that run.
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
	// SIGPIPE: when nobody reads the output any more, as behind `| head`, a job
	// is ended and cleaned up like on Ctrl-C.
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE} {
		if !signal.Ignored(s) { // as nohup has it
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
		Long: `Outrigger does the communication of HPC applications in a sidecar beside them.
This program runs a job on this machine as a cluster would, with one sidecar for
each pod; it needs no cluster, no RDMA and no privileges.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(commands()...)
	root.SetFlagErrorFunc(flagError)
	args := mpirunWords(os.Args[1:])
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if _, _, unknown := root.Find(args); unknown != nil {
		err = noCommand(root, args)
	}
	if err != nil {
		outlet.WriteLast(os.Stderr, fmt.Sprintln("outrigger:", err)) // and if nobody reads it, the exit code is still to come
		var f *jobrun.Failure
		if errors.As(err, &f) {
			return exitCode(f.Code)
		}
		return 1
	}
	return 0
}

// atOnce is closed when a person does not want to wait for the end of a job: by the second
// signal that asks for it.
var atOnce = make(chan struct{})

// exitCode is the code that a process can give: the low eight bits, and never 0
// for a failure. An abort may have chosen any.
func exitCode(code int) int {
	if code&0xff == 0 {
		return 1
	}
	return code & 0xff
}

// endedBy is what a signal means, with a shell's exit code for it.
func endedBy(s os.Signal) *jobrun.Failure {
	number, _ := s.(syscall.Signal) // all are
	text := "ended by " + unix.SignalName(number)
	switch number {
	case unix.SIGINT:
		text = "interrupted"
	case unix.SIGPIPE:
		text = "nobody reads its output any more"
	}
	return &jobrun.Failure{Text: text, Code: 128 + int(number)}
}

func commands() []*cobra.Command {
	return []*cobra.Command{runCommand(), benchCommand(), rankCommand(), topCommand(), whyCommand(), traceCommand(), figuresCommand(), convertCommand(), imageCommand(), versionCommand()}
}
