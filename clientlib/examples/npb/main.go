// Command npb runs the NAS Parallel Benchmark kernels CG, IS, EP, MG, FT and
// LU over Outrigger. Start it as a job: every rank runs it with the same arguments, and
// rank 0 prints.
//
//	outrigger run -n 4 -- npb -class A cg
//
// It exits with 0 when the result agrees with the value that NPB publishes, with
// 1 when it does not or the run fails, and with 2 for a wrong command line or an
// unsuitable number of ranks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

const (
	exitVerified = 0
	exitFailed   = 1
	exitUsage    = 2
)

func main() {
	options, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(os.Stdout)
		os.Exit(exitVerified)
	case err != nil:
		fmt.Fprintf(os.Stderr, "npb: %v\nRun npb -help for usage.\n", err)
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, options, os.Stdout)
	stop()
	os.Exit(code)
}

// run opens the session, runs the benchmark and returns the exit code.
func run(ctx context.Context, o options, out io.Writer) int {
	session, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		fmt.Fprintf(os.Stderr, "npb: joining the job: %v\nStart npb under a launcher: outrigger run -n 4 -- npb %s\n", err, o.kernel.name)
		return exitFailed
	}
	world := session.World()
	result, err := repeat(ctx, world, o, out)
	if err != nil {
		return report(session, world.Rank(), err)
	}
	if err := session.Close(); err != nil {
		fmt.Fprintf(os.Stderr, "npb: leaving the job: %v\n", err)
		return exitFailed
	}
	if !result.Verified {
		return exitFailed
	}
	return exitVerified
}

// repeat runs the kernel once, or with -until as long as its file does not exist and
// all runs are verified.
func repeat(ctx context.Context, world *outrigger.Comm, o options, out io.Writer) (bench.Result, error) {
	over, table := []byte{0}, out
	for runs := 1; ; runs++ {
		result, err := execute(ctx, world, o, table)
		if err != nil || o.until == "" {
			return result, err
		}
		if world.Rank() == 0 {
			if _, err := os.Stat(o.until); err == nil || !result.Verified {
				over[0] = 1
			}
		}
		if err := outrigger.Bcast(ctx, world, over, 0); err != nil || over[0] == 1 {
			if world.Rank() == 0 && err == nil && result.Verified {
				_, err = fmt.Fprintf(out, "runs: %d, all of them verified\n", runs)
			}
			return result, err
		}
		table = io.Discard // print the table only once
	}
}

// execute runs the kernel; rank 0 prints.
func execute(ctx context.Context, world *outrigger.Comm, o options, out io.Writer) (bench.Result, error) {
	if world.Rank() != 0 {
		return o.kernel.run(ctx, world, o.class, nil)
	}
	if err := bench.WriteHeader(out, o.kernel.title, o.class, world.Size()); err != nil {
		return bench.Result{}, err
	}
	result, err := o.kernel.run(ctx, world, o.class, o.progress(out))
	if err != nil {
		return bench.Result{}, err
	}
	return result, bench.WriteReport(out, result)
}

// report ends a run that has failed. An unsuitable number of ranks is an error on all
// ranks: rank 0 prints it, and each rank leaves. Any other error may have occurred only
// on this rank: it aborts the job, so that the other ranks do not wait for it.
func report(session *outrigger.Session, rank int, err error) int {
	if errors.Is(err, bench.ErrRanks) {
		if rank == 0 {
			fmt.Fprintf(os.Stderr, "npb: %v\n", err)
		}
		_ = session.Close() // no operation is open, and the exit code reports the failure
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "npb: rank %d: %v\n", rank, err)
	if err := session.Abort(exitFailed, err.Error()); err != nil {
		fmt.Fprintf(os.Stderr, "npb: rank %d: ending the job: %v\n", rank, err)
	}
	return exitFailed
}
