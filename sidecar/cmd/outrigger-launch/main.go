// Command outrigger-launch starts the ranks of one pod, next to their sidecar.
//
// It waits until the sidecar is ready, starts the ranks, passes signals on to them, and
// exits with the exit code of the first rank that fails. The package launch does the work;
// this package reads the flags, connects launch to mpi and to the sidecar's socket, and
// writes the termination message if no rank was started. The subcommand mpirun runs instead
// of the ranks if the program calls mpirun itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/mpi"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

func main() { os.Exit(execute()) }

// options holds the values of the flags.
type options struct {
	socket, termination, mpi string
	stdin                    string
	ranks                    rankFlags
	statusFD, lockFD         int
	prefix                   bool
	wait, grace              time.Duration
}

func execute() int {
	var o options
	code := 0
	cmd := &cobra.Command{
		Use:   "outrigger-launch --socket PATH --ranks FIRST-LAST -- PROGRAM [ARGS]",
		Short: "start the ranks of one pod next to their sidecar",
		Long: `outrigger-launch waits for the sidecar's socket and starts PROGRAM once for each
rank, with OUTRIGGER_SOCKET and OUTRIGGER_RANK in its environment. It passes signals
on to the ranks. When a rank fails, the others get SIGTERM, and SIGKILL 2 s later. On
SIGTERM all ranks get SIGTERM, and SIGKILL after --grace. Until then they can still
communicate, to agree on a checkpoint and write it. A second SIGTERM kills at once.
The exit code is that of the first failure: 128+N for a signal, 127 for a program that
does not exist, 143 for ranks that ended with 0 because of SIGTERM. With --mpi, a
PROGRAM that is an mpirun or mpiexec, or that calls one and has OUTRIGGER_MPIRUN=1 in
its environment, is started once, in the first pod, and its daemons in all pods
(docs/mpi.md).`,
		Example: `  outrigger-launch --socket /run/outrigger/sidecar.sock --ranks 4-7 -- ./solver -n 1000
  outrigger-launch --socket /run/outrigger/sidecar.sock --pod 1 --ranks-per-pod 4 --world 14 -- ./solver`,
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := o.config(cmd, args)
			if err != nil {
				return err
			}
			code, err = run(cfg, o.wait)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.socket, "socket", "", "the sidecar's Unix socket (required)")
	o.ranks.flags(cmd)
	f.StringVar(&o.mpi, "mpi", "", "the program's MPI, which runs over the sidecar: auto (the one that the program is linked to), mpich, intel, openmpi or none; without this flag a program that is linked to an MPI is refused")
	f.StringVar(&o.stdin, "stdin", "", "file that rank 0 reads as its standard input; default: this program's, unless that is a terminal")
	f.IntVar(&o.statusFD, "status-fd", 0, "write a JSON line to this descriptor when a rank starts, exits or fails")
	f.IntVar(&o.lockFD, "lock-fd", 0, "keep this descriptor open to the end and pass it to no rank: the lock of the job's directory")
	f.BoolVar(&o.prefix, "prefix", false, "put [rank] before each line of output")
	f.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for a sidecar that does not answer; the wait for a sidecar that reports what it waits for is not limited")
	f.DurationVar(&o.grace, "grace", 10*time.Second, "on SIGTERM, time between SIGTERM and SIGKILL for the ranks; at most 2 s if the job has failed")
	f.StringVar(&o.termination, "termination-log", "", "write which ranks failed into this file, for Kubernetes /dev/termination-log")
	_ = cmd.MarkFlagRequired("socket") // the flag exists
	cmd.AddCommand(installCommand(), startCommand(&code))
	cmd.CompletionOptions.DisableDefaultCmd = true
	if err := cmd.Execute(); err != nil {
		outlet.WriteLast(os.Stderr, fmt.Sprintln("outrigger-launch:", err))
		return max(code, 1)
	}
	return code
}

// config returns the configuration of launch. If no rank can be started, its Unable has the
// reason, so that the failure is reported as a failure of the job.
func (o *options) config(cmd *cobra.Command, program []string) (launch.Config, error) {
	if o.grace <= 0 {
		return launch.Config{}, fmt.Errorf("--grace %v: want a time above 0; a second SIGTERM kills the ranks at once", o.grace)
	}
	cfg := launch.Config{
		Socket: o.socket, Program: program, Prefix: o.prefix,
		Pod: o.ranks.pod, Drain: o.grace,
		JobFailed: func(ctx context.Context) (bool, error) { return mpi.JobFailed(ctx, o.socket) },
	}
	cfg.Out, cfg.Err = outlet.Pair(os.Stdout, os.Stderr, func(f *os.File) io.Writer { return f })
	var err error
	if cfg.First, cfg.Last, err = o.ranks.bounds(cmd.Flags().Changed); err != nil {
		return cfg, err
	}
	if cfg.Log, err = podlife.Open(o.termination); err != nil {
		return cfg, err
	}
	cfg.Failed = func(rank, code int) { mpi.Failed(o.socket, rank, code) }
	if cfg.Unable = o.openInput(&cfg); cfg.Unable == nil {
		cfg.Unable = o.setMPI(&cfg)
	}
	if o.lockFD > 0 {
		unix.CloseOnExec(o.lockFD) // else a daemon of a rank could hold the lock after the job
	}
	if o.statusFD > 0 {
		unix.CloseOnExec(o.statusFD) // else a rank could write reports as the launcher
		cfg.Status = os.NewFile(uintptr(o.statusFD), "status")
	}
	return cfg, nil
}

// openInput sets the standard input of rank 0 if the rank is in this pod. A terminal is not
// passed on: it stops a background process group that reads it, and each rank is one.
func (o *options) openInput(cfg *launch.Config) error {
	if cfg.First != 0 {
		return nil
	}
	if o.stdin != "" {
		f, err := os.Open(o.stdin)
		if err != nil {
			return fmt.Errorf("standard input of rank 0: %w; --stdin (stdinFile of an MPIJob) names a file in the container of the first rank", err)
		}
		cfg.Stdin = f
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err != nil {
		cfg.Stdin = os.Stdin
	}
	return nil
}

// setMPI configures the ranks as those of an MPI, if the program uses one.
func (o *options) setMPI(cfg *launch.Config) error {
	family, err := mpi.Parse(o.mpi)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	switch family {
	case mpi.Unsaid:
		if err := mpi.Refuse(cfg.Program[0]); err != nil {
			return err
		}
	case mpi.None:
	default:
		if starts, err := mpi.Starts(cfg.Program); starts || err != nil {
			cfg.Clue = clue
			// launch starts one process in each pod, this program's subcommand.
			cfg.Last = cfg.First
			cfg.Aborts = func(ctx context.Context, aborted func(rank, code int, lost bool)) {
				// An error means that the sidecar has ended, for which the ranks end as well.
				_ = mpi.Aborts(ctx, cfg.Socket, func(_, code int, lost bool) { aborted(cfg.First, code, lost) })
			}
			cfg.Program = append([]string{self, startCommandName, "--socket", cfg.Socket, "--mpi", o.mpi, "--"}, cfg.Program...)
			return err
		}
		if err := mpi.Contradict(family, cfg.Program[0]); err != nil {
			return err
		}
	}
	ranks, err := mpi.Prepare(family, cfg.Program[0], cfg.Socket, self)
	switch {
	case err != nil:
	case ranks == nil:
		cfg.Judge = func(ctx context.Context, rank int) error {
			// An error means that the sidecar has ended, which other processes report.
			if vanished, err := mpi.Ended(ctx, cfg.Socket, rank); vanished && err == nil {
				return errVanished
			}
			return nil
		}
		cfg.Aborts = func(ctx context.Context, aborted func(rank, code int, lost bool)) {
			_ = mpi.Aborts(ctx, cfg.Socket, aborted) // as above
		}
	default:
		cfg.Clue = clue
		cfg.Dress, cfg.Judge, cfg.Failed, cfg.Aborts, cfg.Texts, cfg.Tidy = ranks.Dress, ranks.Judge, ranks.Failed, ranks.Aborts, ranks.Texts, ranks.Close
	}
	return err
}

// errVanished is the error of a rank without an MPI that ended without a Goodbye. Its text is
// the sidecar's for the same failure.
var errVanished = errors.New(podlife.TextVanished)

// clue returns a new reader of the messages that an MPI prints about its failures.
func clue() launch.Clue { return new(mpi.Clue) }

func installCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install DIR",
		Short: "copy this program and the libraries for MPI programs into a directory that containers share",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			_, err = launch.Install(args[0], mpi.Files(self)...) // if a file is missing, the jobs that need it report that
			return err
		},
	}
}
