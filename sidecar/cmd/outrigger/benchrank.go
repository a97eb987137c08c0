package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
)

// rankOptions holds the flags of a rank that measures.
type rankOptions struct {
	peer    string
	tests   []string
	variant string
	private bool
	quick   bool
	upTo    int // bytes
	trips   int
	only    []string
	ops     []string
}

func rankCommand() *cobra.Command {
	var o rankOptions
	cmd := &cobra.Command{
		Use: "bench-rank", Hidden: true, Args: cobra.NoArgs,
		Short: "be one rank of `outrigger bench`",
		RunE:  func(cmd *cobra.Command, _ []string) error { return measure(cmd.Context(), &o, cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.peer, "peer", "outrigger", "name in the output")
	f.StringSliceVar(&o.tests, "tests", bench.Pairwise, "tests to run")
	f.StringVar(&o.variant, "variant", "", "setting of the sidecars, for the output")
	f.BoolVar(&o.private, "private", false, "ordinary memory")
	f.BoolVar(&o.quick, "quick", false, "few iterations")
	f.IntVar(&o.trips, "trips", 0, "round trips of each pattern of buffers")
	f.StringSliceVar(&o.only, "patterns", nil, "patterns of buffers to measure; default all")
	f.StringSliceVar(&o.ops, "ops", bench.Operations, "collectives to measure")
	f.IntVar(&o.upTo, "bytes-max", 0, "largest size in bytes")
	return cmd
}

// meter measures on one rank; rank 0 prints.
type meter struct {
	ctx    context.Context
	o      *rankOptions
	method bench.Method
	s      *outrigger.Session
	c      *outrigger.Comm
	w      io.Writer
	// out and in are the buffers of the tests between two ranks: written once,
	// then used again for every message.
	out, in []byte
	clock   clock
	// spent collects the results of compute, so that the compiler does not remove it.
	spent uint64
}

func measure(ctx context.Context, o *rankOptions, w io.Writer) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	m := &meter{ctx: ctx, o: o, method: bench.Method{Quick: o.quick, BytesMax: o.upTo, Trips: o.trips}, s: s, c: s.World(), w: w}
	if err := m.run(); err != nil {
		return err // the end of this process ends the other ranks; Close would wait for them
	}
	return s.Close()
}

func (m *meter) run() error {
	tests, err := bench.Select(m.o.tests)
	if err != nil {
		return err
	}
	if slices.Contains(bench.Pairwise, tests[0]) {
		if err := m.pair(); err != nil {
			return err
		}
	}
	for _, t := range tests {
		run := map[string]func() error{
			bench.Self: m.self, bench.Latency: m.latencies, bench.Bandwidth: m.bandwidths, bench.Rate: m.rate,
			bench.Overlap: m.overlaps, bench.Collectives: m.collectives, bench.Fairness: m.fairness,
			bench.Reuse: m.reuse, bench.OneSided: m.onesided, bench.Bowtie: m.bowtie, bench.Channels: m.channels,
		}[t]
		if err := run(); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return nil
}

// pair prepares the buffers and the clock of the tests between two ranks.
func (m *meter) pair() error {
	if m.c.Size() != 2 {
		return fmt.Errorf("%d ranks: these tests are between 2", m.c.Size())
	}
	var err error
	if m.out, err = buffer[byte](m, bench.BytesMax); err != nil {
		return err
	}
	if m.in, err = buffer[byte](m, bench.BytesMax); err != nil {
		return err
	}
	for i := range m.out {
		m.out[i], m.in[i] = sent, unsent
	}
	m.clock, err = newClock()
	return err
}

// buffer returns memory that is shared with the sidecar, or ordinary memory with
// --private.
func buffer[T outrigger.Number](m *meter, n int) ([]T, error) {
	if m.o.private {
		return make([]T, n), nil
	}
	return outrigger.Alloc[T](m.s, n)
}

func (m *meter) first() bool { return m.c.Rank() == 0 }

// print writes a figure on rank 0. All ranks call it, since all have the figure.
func (m *meter) print(f bench.Figure) error {
	if !m.first() {
		return nil
	}
	f.Peer, f.Variant = m.o.peer, m.o.variant
	return f.Write(m.w)
}

// repeat runs run several times and returns the median and the minimum of its results.
func repeat(run func() (float64, error)) (median, least float64, err error) {
	all, err := bench.Repeat(run)
	if err != nil {
		return 0, 0, err
	}
	return bench.Median(all), slices.Min(all), nil
}
