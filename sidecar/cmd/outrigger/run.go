package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/mpi"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/report"
)

// runOptions is what a person asks for.
type runOptions struct {
	spec                      jobrun.Spec
	arena                     sizeFlag
	report, noPrefix, encrypt bool
	noStatus                  bool
	plots                     string
	file, dryRun, status      string
	quietIgnored              bool
	line                      *statusLine
	out, err                  *outlet.Writer // which may be one
	cmd                       *cobra.Command
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run {-n RANKS [--pods P] -- PROGRAM [ARGS] | -f MPIJOB.yaml [-- PROGRAM [ARGS]]}",
		Short: "run a job on this machine",
		Long: `run starts one sidecar and one launcher for each pod, and PROGRAM once for each
rank. Output carries the rank in front. When a rank or a sidecar fails, the job
ends, the first failure is named, and its exit code is this command's. On a
terminal the last line says how long the job runs, how many ranks are alive, and
what they send.

With -f it reads the MPIJob that a cluster would run: ranks, pods, command,
environment, memory, FabricProfile and run policy are those of the file. There is
no container: a program that is not where the file says is looked for by its name
beside outrigger and in PATH. What has no meaning on one machine is listed.`,
		Example: `  outrigger run -n 4 --pods 2 -- bin/npb -class A cg
  outrigger run -n 8 --pods 4 --report --plots out/ -- ./solver --steps 100
  outrigger run -n 4 --pods 2 --trace cg.json -- bin/npb cg   # open it at ui.perfetto.dev
  outrigger run -n 4 --pods 2 --mpi auto -- hpcc      # an MPI program of a distribution
  outrigger run -f mpijob.yaml                        # as kubectl apply -f would
  outrigger run -f mpijob.yaml --dry-run              # only say what would run
  outrigger run -f mpijob.yaml -- ./solver --steps 1  # another program`,
		Args: func(_ *cobra.Command, args []string) error {
			if o.file == "" && len(args) == 0 {
				return errors.New("no program to run: give one after --, or a manifest with -f FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.cmd, o.line = cmd, newStatusLine()
			if o.noStatus {
				o.line = &statusLine{}
			}
			o.out, o.err = outlet.Pair(os.Stdout, os.Stderr, o.line.through)
			defer context.AfterFunc(cmd.Context(), o.hurry)()
			defer func() {
				if err != nil { // its text follows
					o.err.EndLine()
				}
				o.out.Flush()
				o.err.Flush()
			}()
			o.spec.Prefix, o.spec.AtOnce, o.spec.Adopts = !o.noPrefix, atOnce, true
			notices := make(chan os.Signal, 8)
			signal.Notify(notices, unix.SIGUSR1, unix.SIGUSR2)
			defer signal.Stop(notices)
			o.spec.Notices = notices
			if o.spec.Grace <= 0 {
				return fmt.Errorf("--grace %v: want a time above 0; a second Ctrl-C kills the ranks at once", o.spec.Grace)
			}
			if err := plotsFolder(o.plots); err != nil {
				return err
			}
			if o.file != "" {
				return o.runManifest(cmd.Context(), args)
			}
			return o.runProgram(cmd.Context(), args)
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *runOptions) flags(cmd *cobra.Command) {
	f, s := cmd.Flags(), &o.spec
	f.IntVarP(&s.Ranks, "ranks", "n", 1, "number of ranks; -np, as mpirun has it, is the same")
	f.IntVar(&s.Pods, "pods", 1, "number of pods, each with a sidecar of its own; ranks are spread evenly")
	f.StringVar(&s.MPI, "mpi", "", "the program's MPI, which shall run over the sidecars unmodified: auto (what the program is linked to), mpich, intel, openmpi or none; without it a program that is linked to an MPI is refused")
	f.Var(&o.arena, "arena", "shared memory of each rank, such as 512MiB, 512Mi or 512M; a number alone is MiB; 64KiB to 16TiB, 0: the default (default at most 256MiB, of which memory is taken when it is used)")
	f.StringVar(&s.Tuning.Wait, "wait", "", "how sidecars wait: poll, yield or block (default: poll while there are processors for it, then yield, then block)")
	f.StringVar(&s.Tuning.Channel, "channel", "", "how small messages travel over RDMA: piggyback, basic, pipeline or zerocopy")
	f.StringVar(&s.Tuning.Rendezvous, "rendezvous", "", "protocol of large messages: auto, getcqe, get, put, putnr, rput or stream")
	f.StringVar(&s.Tuning.Transport, "transport", "", "transport between pods: auto (memory of this machine, or RDMA where there is a device), node (memory), tcp, or rdma")
	f.BoolVar(&o.encrypt, "encrypt", false, "carry data between pods inside TLS 1.3 with the job's own authority")
	f.BoolVar(&o.report, "report", false, "print what was called, how long ranks were in calls and waited, and what was communicated, by protocol and between which ranks")
	f.StringVar(&s.Trace, "trace", "", "write a timeline of calls, messages and the engine's turns into this file, which ui.perfetto.dev and chrome://tracing open")
	f.StringVar(&o.plots, "plots", "", "write the rank-by-rank matrix as a PNG into this directory")
	f.BoolVar(&o.noPrefix, "no-prefix", false, "pass on what ranks print byte for byte, without the rank before each line")
	f.BoolVar(&o.noStatus, "no-status", false, "do not show on a terminal how far the job is")
	f.DurationVar(&s.Grace, "grace", jobrun.DefaultGrace, "when the job is ended by Ctrl-C or a signal, how long ranks may go on with their messages between SIGTERM and SIGKILL, to write a checkpoint; a second Ctrl-C kills at once")
	f.DurationVar(&s.Timeout, "timeout", 0, "end the job after this time (default: none)")
	f.DurationVar(&s.Deadlock.After, "deadlock-after", deadlockAfter, "tell of a suspected deadlock when every rank has waited this long with nothing under way; 0: never")
	f.BoolVar(&s.Deadlock.Fails, "deadlock-fails", false, "end the job then, with exit code 124")
	f.StringVar(&s.Dir, "dir", "", "keep the job's directory here: bootstrap document, credentials, sockets, process ids, flight recorders of a failed job")
	f.StringVar(&s.LogLevel, "sidecar-log", "", "show the sidecars' log: debug, info, warn or error (default: errors only, and all of it in --dir)")
	f.StringVarP(&o.file, "file", "f", "", "run the MPIJob in this file of YAML or JSON; - reads standard input")
	f.StringVar(&o.dryRun, "dry-run", "", "with -f: print the bootstrap document and what would run, and end; =cluster prints the operator's document")
	f.Lookup("dry-run").NoOptDefVal = dryLocal
	f.StringVar(&o.status, "status", "", "with -f: write the MPIJob with its status at the end, as YAML, into this file; - is standard output")
	f.BoolVar(&o.quietIgnored, "quiet-ignored", false, "with -f: do not list what is ignored here")
}

// deadlockAfter is when a deadlock is suspected where nothing is said: a person waits for
// the terminal. A cluster takes longer (v1alpha1.DeadlockAfterDefault), since its looks at
// jobs cost the network.
const deadlockAfter = 10 * time.Second

// deadlockLeast is the least time after which a deadlock may be suspected: a message
// may be on its way for as long as a busy machine does not run its sidecars.
const deadlockLeast = 100 * time.Millisecond

// runProgram runs the job that the flags describe.
func (o *runOptions) runProgram(ctx context.Context, args []string) error {
	for _, name := range manifestFlags {
		if o.cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s needs a manifest: -f FILE", name)
		}
	}
	s := &o.spec
	family, err := mpi.Parse(s.MPI)
	if err != nil {
		return err
	}
	if family == mpi.Unsaid {
		if err := mpi.Refuse(args[0]); err != nil {
			return err
		}
	}
	if s.Timeout < 0 {
		return fmt.Errorf("--timeout %v: want a time, or 0 for none", s.Timeout)
	}
	if s.Deadlock.After < 0 {
		return fmt.Errorf("--deadlock-after %v: want a time, or 0 for never", s.Deadlock.After)
	}
	if 0 < s.Deadlock.After && s.Deadlock.After < deadlockLeast {
		return fmt.Errorf("--deadlock-after %v: want %v at least, or 0 for never: ranks of a right program wait for a few milliseconds", s.Deadlock.After, deadlockLeast)
	}
	if s.Deadlock.After == 0 && s.Deadlock.Fails {
		return errors.New("--deadlock-fails with --deadlock-after 0: nobody would look for a deadlock; leave one of them out")
	}
	s.Program, s.ArenaBytes, s.Name = args, int64(o.arena), filepath.Base(args[0])
	s.Stdin = input()
	if o.encrypt {
		s.Tuning.Encrypt = bootstrap.EncryptTLS
	}
	_, err = o.run(ctx, s, o.after())
	return ended(err)
}

// ended is the error of a job, with what it is about.
func ended(err error) error {
	switch f := (*jobrun.Failure)(nil); {
	case err == nil:
		return nil
	case errors.As(err, &f) && f.Done:
		return fmt.Errorf("warning: all ranks have ended well, but %w", err)
	}
	return fmt.Errorf("job failed: %w", err)
}

// plotsFolder makes the folder of --plots before the hours that a job takes: one that
// ends well must not fail for want of it.
func plotsFolder(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder of the plots: %w; --plots names a folder, which is made where you may write", err)
	}
	return nil
}

// after shows the report, if one is asked for.
func (o *runOptions) after() func([]obs.Report) error {
	if !o.report && o.plots == "" {
		return nil
	}
	return func(all []obs.Report) error { return report.Show(o.out, all, o.plots) }
}

// run runs a job to its end with a line that says how far it is. The job is nil
// if it could not be started.
func (o *runOptions) run(ctx context.Context, s *jobrun.Spec, report func([]obs.Report) error) (*jobrun.Job, error) {
	j, err := jobrun.Start(ctx, s, o.out, o.err)
	if err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() { defer close(gone); o.line.follow(following, s.Ranks, j) }()
	err = j.Wait(ctx, report)
	stop()
	select {
	case <-gone:
	case <-time.After(outlet.StallTimeout): // a terminal that is paused: it keeps the line
	}
	return j, err
}

// hurry lets nothing wait any more for those who read the output.
func (o *runOptions) hurry() {
	o.out.LimitWait()
	o.err.LimitWait()
}
