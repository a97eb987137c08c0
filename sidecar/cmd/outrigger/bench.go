package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// benchOptions holds the flags of outrigger bench and its output.
type benchOptions struct {
	pods, ranks  int
	tests        []string
	asJSON       bool
	plots, wait  string
	trace        string
	tune         bool
	table        string // file of the table that tune writes
	upTo         int
	private      bool
	quick        bool
	encrypt      bool
	transport    string
	out, errOut  io.Writer
	showProgress bool
}

func benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench [test...]",
		Short: "measure latency, bandwidth, message rate, overlap, collectives, fairness and protocols",
		Long: `bench runs jobs on this machine and measures them.

Between two ranks, by the method in the header of hack/bench/mpibench.c, so that
the figures can be compared with those of any MPI:
  latency      half a round trip of 8 B to 4 MiB
  bandwidth    64 messages in flight, 64 KiB to 4 MiB
  rate         8-byte messages a second
  overlap      share of a transfer that overlaps with computing, when one rank
               computes and when both do: 100 % is all of it; a figure outside
               0 to 100 is noise and is printed unchanged
Only if they are named:
  self         8 bytes of one rank to itself, through its sidecar: the time of one
               pass through the engine, if each process has a processor
  collectives  barrier, bcast, reduce, allreduce, allgather and alltoall among
               --ranks ranks: the time until the last rank has finished
  fairness     round trips of 8 bytes between two ranks while others of their
               pods move 512 MiB by send, put, get and reduction, and to a peer
               whose sidecar is stopped again and again; takes 4 GiB of memory

The papers' experiments on this machine's link, as jobs that differ in one setting and
run in turn, with the gain of each over the first one in the same turn:
  reuse        messages from one buffer, from buffers used 1 to 1000 times, and with
               the buffer patterns of LU, CG, AMG and MILC (paper 000): once with
               every buffer copied, once with buffers registered where that is
               faster. TCP and shared memory register nothing: there the two are
               the same, and differ by noise
  onesided     put and get with their fence, with the same two settings
  bowtie       pairs of ranks that exchange messages at the same time, and an
               all-to-all in groups of four (paper 001), by each rendezvous
               protocol. TCP has no remote access: there all use frames
  channels     small messages and large ones by each eager channel (paper 004);
               over TCP they are the same

With --tune, the test collectives measures each algorithm of each collective and size, for
--ranks ranks in --pods pods, and writes the fastest ones as rules of a FabricProfile:
for outrigger run --collectives, for a job file, or for kubectl apply. The algorithm that
is used without a rule is kept unless another one is faster by 5 %, and in four of five
turns. Rules hold where they were measured: on this machine, over --transport.

A job has one sidecar for each pod. With fewer cores than processes, the figures
measure the scheduler of this machine rather than Outrigger.`,
		Example: `  outrigger bench                              # two pods, by memory that their sidecars share
  outrigger bench --transport tcp              # two pods, as if on two machines
  outrigger bench --pods 1                     # one pod
  outrigger bench latency rate                 # only these
  outrigger bench collectives -n 8             # 8 ranks in two pods
  outrigger bench collectives --tune -n 8 --pods 4 -o tuned.yaml # rules for run --collectives
  outrigger bench fairness                     # latency while other ranks move data
  outrigger bench bowtie -n 8 --plots out/     # rendezvous protocols, 4 pairs
  outrigger bench --encrypt                    # with encryption, for its cost
  outrigger bench --private                    # without memory from Alloc, for its gain
  outrigger bench offload                      # copy engines, without a job
  outrigger bench --json | tee figures.json    # one JSON object per line
  outrigger bench --plots out/                 # with plots as PNG files`,
		ValidArgs: bench.Tests,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.tests = args
			}
			o.out, o.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
			// JSON figures on the same terminal already show the progress.
			o.showProgress = term.IsTerminal(int(os.Stderr.Fd())) && !(o.asJSON && term.IsTerminal(int(os.Stdout.Fd())))
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.pods, "pods", 2, "1: all ranks in one pod; 2: half of them in each of two; with --tune also more")
	f.BoolVar(&o.tune, "tune", false, "with the test collectives: measure their algorithms, and write a FabricProfile with rules that choose the fastest")
	f.StringVarP(&o.table, "output", "o", "", "with --tune: file to write (default: standard output)")
	f.IntVarP(&o.ranks, "ranks", "n", 4, "number of ranks of the collectives, and of bowtie")
	f.StringSliceVar(&o.tests, "tests", bench.Pairwise, "tests to run, the same as the arguments: "+strings.Join(bench.Tests, ", "))
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object for each figure instead of tables")
	f.StringVar(&o.plots, "plots", "", "plot the figures over message size as PNG files in this directory")
	f.BoolVar(&o.private, "private", false, "use ordinary memory instead of memory shared with the sidecar")
	f.BoolVar(&o.encrypt, "encrypt", false, "encrypt data between the pods by TLS, which is over TCP")
	f.StringVar(&o.transport, "transport", bootstrap.TransportNode, "transport of data between the pods: node (memory of this machine), tcp, or ether (small messages by UDP)")
	f.IntVar(&o.upTo, "bytes-max", 0, "largest message size of latency, bandwidth and collectives, in bytes; 0: all sizes")
	f.StringVar(&o.trace, "trace", "", "record a timeline into this file, as run does, to measure the cost of that")
	f.BoolVar(&o.quick, "quick", false, "few iterations: a check that the tests run, not a measurement")
	f.StringVar(&o.wait, "wait", "", "how sidecars wait: poll, yield or block (default: poll while there are idle processors, then yield, then block); $OUTRIGGER_WAIT sets how ranks wait")
	cmd.AddCommand(offloadCommand())
	return cmd
}

func (o *benchOptions) run(ctx context.Context) error {
	tests, err := bench.Select(o.tests)
	if err != nil {
		return err
	}
	if err := o.checkTune(tests); err != nil {
		return err
	}
	if o.pods != 1 && o.pods != 2 && !o.tune {
		return fmt.Errorf("--pods %d: want 1 or 2", o.pods)
	}
	if !slices.Contains([]string{bootstrap.TransportNode, bootstrap.TransportTCP, bootstrap.TransportEther}, o.transport) {
		return fmt.Errorf("--transport %s: want %s, %s or %s", o.transport, bootstrap.TransportNode, bootstrap.TransportTCP, bootstrap.TransportEther)
	}
	if o.upTo != 0 && o.upTo < 8 {
		return fmt.Errorf("--bytes-max %d: want 0, or at least 8", o.upTo)
	}
	if o.ranks < 2 {
		return fmt.Errorf("--ranks %d: a collective needs at least 2", o.ranks)
	}
	if o.tune {
		return o.runTune(ctx)
	}
	if err := plotsFolder(o.plots); err != nil {
		return err
	}
	var all []bench.Figure
	for _, j := range o.jobs(tests) {
		figures, err := o.job(ctx, j)
		if err != nil {
			return err
		}
		all = append(all, figures...)
	}
	return o.show(all)
}

// benchJob describes a job that runs one or more tests.
type benchJob struct {
	ranks, pods int
	tests       []string
	variant     string // setting of the sidecars that this job measures; "": the default
	pass        *pass  // algorithms of the collectives that this job measures; nil: all collectives, by the sidecars' choice
}

// jobs returns the jobs that run the tests. All tests between two ranks share one job,
// which runs first.
func (o *benchOptions) jobs(tests []string) []benchJob {
	var all []benchJob
	var pairwise []string
	for _, t := range tests {
		switch t {
		case bench.Self:
			all = append(all, benchJob{ranks: 1, pods: 1, tests: []string{t}})
		case bench.Collectives:
			all = append(all, benchJob{ranks: o.ranks, pods: o.pods, tests: []string{t}})
		case bench.Reuse, bench.OneSided, bench.Bowtie, bench.Channels:
			all = append(all, o.turns(t)...)
		case bench.Fairness:
			j := benchJob{ranks: 4, pods: 1, tests: []string{t}}
			if o.pods == 2 {
				j.ranks, j.pods = 6, 3
			}
			all = append(all, j)
		default:
			pairwise = append(pairwise, t)
		}
	}
	if len(pairwise) > 0 {
		all = slices.Insert(all, 0, benchJob{ranks: 2, pods: o.pods, tests: pairwise})
	}
	return all
}

// turns returns the jobs of a test with variants: each turn has one job for each variant.
func (o *benchOptions) turns(test string) (all []benchJob) {
	ranks := 2
	if test == bench.Bowtie {
		ranks = o.ranks
	}
	for range (bench.Method{Quick: o.quick}).Turns() {
		for _, v := range bench.Variants(test) {
			all = append(all, benchJob{ranks: ranks, pods: o.pods, tests: []string{test}, variant: v})
		}
	}
	return all
}

// tune sets the job's variant in the tuning of its sidecars.
func (j *benchJob) tune(t *bootstrap.Tuning) {
	switch j.tests[0] {
	case bench.Reuse, bench.OneSided:
		t.Reuse = j.variant
	case bench.Bowtie:
		t.Rendezvous, t.EagerBytes = j.variant, bench.BowtieEager
	case bench.Channels:
		t.Channel = j.variant
	}
}

// job runs a job and returns its figures. The job's program is this executable, as
// bench-rank.
func (o *benchOptions) job(ctx context.Context, j benchJob) ([]bench.Figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("path of this executable: %w", err)
	}
	s := jobrun.Spec{Name: "bench", Ranks: j.ranks, Pods: j.pods, AtOnce: atOnce, Adopts: true}
	s.Tuning.Wait, s.Trace = o.wait, o.trace
	j.tune(&s.Tuning)
	peer := "outrigger-local"
	if j.pods > 1 {
		s.Tuning.Transport, peer = o.transport, "outrigger-"+o.transport
		if o.encrypt {
			s.Tuning.Transport = bootstrap.TransportTCP
			s.Tuning.Encrypt, peer = bootstrap.EncryptTLS, "outrigger-tls"
		}
	}
	s.Program = []string{
		self, "bench-rank", "--peer", peer,
		"--tests", strings.Join(j.tests, ","), "--variant", j.variant, "--private=" + strconv.FormatBool(o.private), "--quick=" + strconv.FormatBool(o.quick), "--bytes-max", strconv.Itoa(o.upTo),
	}
	show := o.showFigure
	var check func([]obs.Report) error
	if j.pass != nil {
		s.Tuning.Collectives, check = j.pass.rules(), j.pass.check
		s.Program = append(s.Program, "--ops", strings.Join(j.pass.ops(), ","))
	}
	if j.tests[0] == bench.Fairness {
		s.ArenaBytes = int64(bench.Method{Quick: o.quick}.FairnessArena())
		if j.pods > 1 {
			slow, err := newSlowSidecar(&s)
			if err != nil {
				return nil, err
			}
			defer slow.close()
			show = func(f bench.Figure) error { return errors.Join(slow.follow(f), o.showFigure(f)) }
		}
	}
	r, w := io.Pipe()
	var figures []bench.Figure
	read := make(chan error, 1)
	go func() {
		var err error
		figures, err = bench.Read(r, show)
		read <- errors.Join(err, r.CloseWithError(err)) // an error wakes the writer
	}()
	err = jobrun.Run(ctx, &s, w, jobErrors{o}, check)
	err = errors.Join(err, w.Close(), <-read)
	o.progress("")
	return figures, err
}

// showFigure shows a figure as soon as it is measured.
func (o *benchOptions) showFigure(f bench.Figure) error {
	if o.asJSON {
		if err := f.Write(o.out); err != nil {
			return err
		}
	}
	o.progress(f.What())
	return nil
}

// jobErrors is the stderr of the job's processes. It erases the progress line before each
// write.
type jobErrors struct{ o *benchOptions }

func (c jobErrors) Write(b []byte) (int, error) {
	c.o.progress("")
	return c.o.errOut.Write(b)
}

// progress replaces the text of the progress line.
func (o *benchOptions) progress(text string) {
	if o.showProgress {
		_, _ = fmt.Fprintf(o.errOut, "\r\033[K%s", text) // the figures do not depend on it
	}
}

func (o *benchOptions) show(all []bench.Figure) error {
	if !o.asJSON {
		if err := bench.Table(o.out, all); err != nil {
			return fmt.Errorf("figures: %w", err)
		}
		if slices.ContainsFunc(all, func(f bench.Figure) bool { return f.Test == bench.Reuse || f.Test == bench.OneSided }) {
			_, _ = fmt.Fprintln(o.out, "\nTCP and shared memory register nothing: off and auto are the same here, and the gain of one over the other is noise of this machine.") // as above
		}
	}
	if o.plots == "" {
		return nil
	}
	files, err := bench.Plot(o.plots, all)
	for _, f := range files {
		_, _ = fmt.Fprintln(o.errOut, "plot:", f) // the figures do not depend on it
	}
	return err
}
