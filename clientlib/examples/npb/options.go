package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/cg"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/ep"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/ft"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/is"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/lu"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/mg"
)

// kernel is one benchmark of the command line.
type kernel struct {
	name, title string
	step        string // name of the steps that a progress line counts
	run         func(context.Context, *outrigger.Comm, bench.Class, bench.Progress) (bench.Result, error)
}

var kernels = []kernel{
	{"cg", "CG", "iteration", cg.Run},
	{"is", "IS", "iteration", is.Run},
	{"ep", "EP", "batch", ep.Run},
	{"mg", "MG", "iteration", mg.Run},
	{"ft", "FT", "step", ft.Run},
	{"lu", "LU", "time step", lu.Run},
}

// options is a parsed command line.
type options struct {
	kernel  kernel
	class   bench.Class
	verbose bool
	until   string // file whose existence ends the repetition of the benchmark; empty: the benchmark runs once
}

// parse accepts flags before and after the benchmark's name.
func parse(args []string) (options, error) {
	o := options{class: bench.S}
	flags := flag.NewFlagSet("npb", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error, once
	flags.Func("class", "problem class", func(s string) (err error) {
		o.class, err = bench.ParseClass(s)
		return err
	})
	flags.StringVar(&o.until, "until", "", "run again until this file exists")
	flags.BoolVar(&o.verbose, "v", false, "print progress")
	name := ""
	for rest := args; ; {
		if err := flags.Parse(rest); err != nil {
			return o, err
		}
		if flags.NArg() == 0 {
			break
		}
		if name != "" {
			return o, fmt.Errorf("one benchmark at a time: got %q after %q", flags.Arg(0), name)
		}
		name, rest = flags.Arg(0), flags.Args()[1:]
	}
	if name == "" {
		return o, errors.New("name a benchmark: cg, is, ep, mg, ft or lu")
	}
	for _, k := range kernels {
		if strings.EqualFold(k.name, name) {
			o.kernel = k
			return o, nil
		}
	}
	return o, fmt.Errorf("unknown benchmark %q: choose cg, is, ep, mg, ft or lu", name)
}

// progress prints the steps if asked to, or if a person is watching.
func (o options) progress(out io.Writer) bench.Progress {
	file, isFile := out.(*os.File)
	if !o.verbose && (!isFile || !term.IsTerminal(int(file.Fd()))) {
		return nil
	}
	return func(done, total int, note string) {
		line := fmt.Sprintf("%s: %s %d/%d %s", o.kernel.name, o.kernel.step, done, total, note)
		// A lost progress line is no reason to end a benchmark.
		_, _ = fmt.Fprintln(out, strings.TrimSpace(line))
	}
}

func usage(out io.Writer) {
	_, _ = io.WriteString(out, `Usage: npb [-class S|W|A|B] [-v] [-until FILE] cg|is|ep|mg|ft|lu

Runs one NAS Parallel Benchmark kernel on all ranks of the job, checks the
result against the published value, and prints NPB's table of results.

Benchmarks
  cg   smallest eigenvalue of a sparse matrix: 8-byte reductions, pairwise sums
  is   sort of small integers: allreduce, alltoall, alltoallv
  ep   Gaussian deviates: hardly any communication
  mg   3-D multigrid: faces exchanged with six neighbours on every level
  ft   3-D fast Fourier transform: the whole array transposed by alltoall
  lu   3-D flow solver: wavefronts of small messages to two neighbours, plane
       after plane, from buffers that are used thousands of times
cg, mg and ft need a power of two of ranks; is, ep and lu run on any number.

Options
  -class C   problem class: S (sample, default), W, A or B
  -v         print progress even when the output is not a terminal
  -until F   run again until rank 0 finds the file F, and stop at the first run
             that is not verified: for tests that need a long-running job
  -help      print this text

Memory: class A takes up to 700 MB over all ranks, class B up to 600 MB, but ft
2.5 GB. Message buffers are in each rank's arena (OUTRIGGER_ARENA bytes): is needs
9 bytes a key there (75 MB over all ranks in class A, 300 MB in class B), ft 32
bytes a point (270 MB and 1.1 GB), the others less than 5 MB a rank.

Example
  outrigger run -n 4 -- npb -class A -v cg

Exit status: 0 verified; 1 verification failed or the run broke off; 2 wrong
command line or number of ranks.
`)
}
