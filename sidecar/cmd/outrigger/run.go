package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/manifest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/mpi"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/report"
)

// runOptions holds the flags of outrigger run and its output.
type runOptions struct {
	spec                 jobrun.Spec
	arena                sizeFlag
	reportFlag           bool
	noPrefix, encrypt    bool
	noStatus             bool
	plots, collectives   string
	file, dryRun, status string
	quietIgnored         bool
	line                 *statusLine
	out, err             *outlet.Writer // the same writer if both go to one file
	cmd                  *cobra.Command
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run {-n RANKS [--pods P] -- PROGRAM [ARGS] | -f MPIJOB.yaml [-- PROGRAM [ARGS]]}",
		Short: "run a job on this machine",
		Long: `run starts one sidecar and one launcher for each pod, and PROGRAM once for each
rank. Each line of output has its rank in front. When a rank or a sidecar fails, the
job ends, and run prints the first failure and exits with its exit code. On a
terminal the last line shows how long the job has run, how many ranks are alive, and
their message rate.

With -f it reads the MPIJob that a cluster would run: ranks, pods, command,
environment, memory, FabricProfile and run policy are those of the file. There is
no container: if a program is not at the path that the file names, run looks for its
name next to outrigger and in PATH. Fields without a meaning on one machine are listed.`,
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
			defer context.AfterFunc(cmd.Context(), o.limitWait)()
			defer func() {
				if err != nil { // main prints it on a line of its own
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
	f.IntVarP(&s.Ranks, "ranks", "n", 1, "number of ranks; -np, as in mpirun, is the same")
	f.IntVar(&s.Pods, "pods", 1, "number of pods, each with a sidecar of its own; ranks are spread evenly")
	f.StringVar(&s.MPI, "mpi", "", "the program's MPI, which runs unmodified over the sidecars: auto (the one that the program is linked to), mpich, intel, openmpi or none; without this flag a program that is linked to an MPI is refused")
	f.Var(&o.arena, "arena", "shared memory of each rank, such as 512MiB, 512Mi or 512M; a number alone is MiB; 64KiB to 16TiB, 0: the default (default at most 256MiB; pages are allocated when they are first used)")
	f.StringVar(&s.Tuning.Wait, "wait", "", "how sidecars wait: poll, yield or block (default: poll while there are idle processors, then yield, then block)")
	f.IntVar(&s.Tuning.Helpers, "helpers", 0, "threads of each sidecar that copy large messages within the machine, at most 8; -1: none (default: one if a processor is left for it)")
	f.StringVar(&s.Tuning.Channel, "channel", "", "how small messages travel over RDMA: piggyback, basic, pipeline or zerocopy")
	f.StringVar(&s.Tuning.Rendezvous, "rendezvous", "", "protocol of large messages: auto, getcqe, get, put, putnr, rput or stream")
	f.StringVar(&o.collectives, "collectives", "", "algorithms of collectives, by the rules of the FabricProfile in this file, such as outrigger bench collectives --tune writes")
	f.StringVar(&s.Tuning.LargePath, "large-path", "", "way of large messages with --transport ether: tcp, pull (by packets) or auto (measured with each pod; pull if that is faster by a quarter) (default: tcp, or pull with --rendezvous get or getcqe)")
	f.StringVar(&s.Tuning.Transport, "transport", "", "transport between pods: auto (memory of this machine, or RDMA where there is a device), node (memory), tcp, ether (small messages by UDP, large ones by TCP), or rdma")
	f.BoolVar(&o.encrypt, "encrypt", false, "encrypt data between pods by TLS 1.3 with a certificate authority of the job")
	f.BoolVar(&o.reportFlag, "report", false, "print the calls of the ranks, the time that they spent in calls and waiting, and the traffic by protocol and between ranks")
	f.StringVar(&s.Trace, "trace", "", "write a timeline of calls, messages and turns of the engine into this file, for ui.perfetto.dev or chrome://tracing")
	f.StringVar(&o.plots, "plots", "", "write the rank-by-rank matrix as a PNG into this directory")
	f.BoolVar(&o.noPrefix, "no-prefix", false, "print the ranks' output byte for byte, without the rank before each line")
	f.BoolVar(&o.noStatus, "no-status", false, "do not show the job's progress on a terminal")
	f.DurationVar(&s.Grace, "grace", jobrun.DefaultGrace, "after Ctrl-C or a signal, time between SIGTERM and SIGKILL in which ranks can still communicate and write a checkpoint; a second Ctrl-C kills at once")
	f.DurationVar(&s.Timeout, "timeout", 0, "end the job after this time (default: none)")
	f.DurationVar(&s.Deadlock.After, "deadlock-after", deadlockAfter, "report a suspected deadlock when every rank has waited this long and no message is in flight; 0: never")
	f.BoolVar(&s.Deadlock.Fails, "deadlock-fails", false, "end a job that is suspected of a deadlock, with exit code 124")
	f.StringVar(&s.Dir, "dir", "", "keep the job's directory here: bootstrap document, credentials, sockets, process ids, flight recorders of a failed job")
	f.StringVar(&s.LogLevel, "sidecar-log", "", "show the sidecars' log: debug, info, warn or error (default: errors only, and all of it in --dir)")
	f.StringVarP(&o.file, "file", "f", "", "run the MPIJob in this file of YAML or JSON; - reads standard input")
	f.StringVar(&o.dryRun, "dry-run", "", "with -f: print the bootstrap document and the commands that would run, and end; =cluster prints the operator's document")
	f.Lookup("dry-run").NoOptDefVal = dryLocal
	f.StringVar(&o.status, "status", "", "with -f: at the end, write the MPIJob with its status as YAML into this file; - is standard output")
	f.BoolVar(&o.quietIgnored, "quiet-ignored", false, "with -f: do not list the fields that are ignored here")
}

// deadlockAfter is the default of --deadlock-after: short, because a person waits at the
// terminal. The default of a cluster is longer (v1alpha1.DeadlockAfterDefault), because
// there the operator asks each job over the network.
const deadlockAfter = 10 * time.Second

// deadlockLeast is the least value of --deadlock-after. It prevents false reports: a
// message stays in flight for as long as a busy machine does not run its sidecars.
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
		return fmt.Errorf("--deadlock-after %v: want %v at least, or 0 for never: ranks of a correct program wait for a few milliseconds", s.Deadlock.After, deadlockLeast)
	}
	if s.Deadlock.After == 0 && s.Deadlock.Fails {
		return errors.New("--deadlock-fails with --deadlock-after 0: deadlocks are not searched for; leave one of them out")
	}
	if s.Tuning.Collectives, err = readCollectives(o.collectives); err != nil {
		return err
	}
	s.Program, s.ArenaBytes, s.Name = args, int64(o.arena), filepath.Base(args[0])
	s.Stdin = input()
	if o.encrypt {
		s.Tuning.Encrypt = bootstrap.EncryptTLS
	}
	_, err = o.run(ctx, s, o.showReport())
	return jobError(err)
}

// readCollectives returns the rules in a file; "": none.
func readCollectives(path string) ([]bootstrap.CollectiveRule, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--collectives: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, manifest.SizeMax+1))
	if err != nil {
		return nil, fmt.Errorf("--collectives: %w", err)
	}
	rules, err := manifest.ReadCollectives(text)
	if err != nil {
		return nil, fmt.Errorf("--collectives %s: %w", path, err)
	}
	return rules, nil
}

// jobError returns the error of a job with its context: a warning if all ranks ended
// well, else a failure of the job.
func jobError(err error) error {
	switch f := (*jobrun.Failure)(nil); {
	case err == nil:
		return nil
	case errors.As(err, &f) && f.Done:
		return fmt.Errorf("warning: all ranks have ended well, but %w", err)
	}
	if remedy := podlife.Remedy(err.Error()); remedy != "" {
		return fmt.Errorf("job failed: %w\noutrigger: remedy: %s", err, remedy)
	}
	return fmt.Errorf("job failed: %w", err)
}

// plotsFolder creates the folder of --plots before the job starts: a job that ends well
// after hours must not fail because its folder cannot be created.
func plotsFolder(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder of the plots: %w; give --plots a folder that you may create or write to", err)
	}
	return nil
}

// showReport returns the function that prints the report and draws the plots at the end of
// the job, or nil if neither is asked for.
func (o *runOptions) showReport() func([]obs.Report) error {
	if !o.reportFlag && o.plots == "" {
		return nil
	}
	return func(all []obs.Report) error { return report.Show(o.out, all, o.plots) }
}

// run runs a job to its end and shows its progress in the status line. The job is nil if
// it could not be started.
func (o *runOptions) run(ctx context.Context, s *jobrun.Spec, report func([]obs.Report) error) (*jobrun.Job, error) {
	j, err := jobrun.Start(ctx, s, o.out, o.err)
	if err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(ctx)
	lineRemoved := make(chan struct{})
	go func() { defer close(lineRemoved); o.line.follow(following, s.Ranks, j) }()
	err = j.Wait(ctx, report)
	stop()
	select {
	case <-lineRemoved:
	case <-time.After(outlet.StallTimeout): // the terminal is paused: the line stays on it
	}
	return j, err
}

// limitWait bounds the time for which writes of output wait for its readers, once the job
// is to end.
func (o *runOptions) limitWait() {
	o.out.LimitWait()
	o.err.LimitWait()
}
