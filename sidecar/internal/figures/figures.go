// Package figures runs the experiments of the five papers with this engine in
// virtual time, on the machines that the papers describe (package platform), and compares
// the results with those of the papers. Nothing is fitted: a result that differs is shown
// with the reason.
package figures

import (
	"fmt"
	"math"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/platform"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/virtual"
)

// Row is one number of a paper and the result of this engine.
type Row struct {
	Paper  string // and figure or table
	What   string
	Unit   string
	Theirs float64
	Ours   float64 // NaN: the experiment does not run yet
	Bound  bool    // Theirs is a bound for Ours, and not a value
	Law    string  // part of the model that determines it
	Note   string  // why it differs, or what is missing to run it
}

// Runs reports whether this engine has a result.
func (r *Row) Runs() bool { return !math.IsNaN(r.Ours) }

// Ratio returns Ours divided by Theirs.
func (r *Row) Ratio() float64 { return r.Ours / r.Theirs }

// Near reports whether Ours is within a third of Theirs, or within the bound.
func (r *Row) Near() bool {
	if r.Bound {
		return math.Abs(r.Ours) <= r.Theirs
	}
	if r.Theirs == 0 {
		return math.Abs(r.Ours) < 1
	}
	return r.Runs() && math.Abs(r.Ratio()-1) <= 1.0/3
}

// Curve is one line of a plot.
type Curve struct {
	Name   string
	Points []Point
}

// Point is a value at a size.
type Point struct{ X, Y float64 }

// Plot is one figure of a paper, with the results of this engine.
type Plot struct {
	Name   string // name of the figure's file
	Title  string
	X, Y   string
	Sizes  bool // X is a message size: logarithmic, in bytes
	Curves []Curve
}

// Report has all results.
type Report struct {
	Rows  []Row
	Plots []Plot
}

// Effort is the part of the papers' repetitions that is done.
type Effort struct {
	Rounds int  // rounds of each operation; the papers have 10,000
	Step   int  // of the spectrum's 1000 buffers, every Step-th is used; at least 4
	Ends   bool // only the smallest and the largest message of each figure
}

// of selects the sizes of a figure.
func (e Effort) of(sizes []int) []int {
	if e.Ends {
		return []int{sizes[0], sizes[len(sizes)-1]}
	}
	return sizes
}

// Full returns the effort of `outrigger figures`. The spectrum uses every tenth buffer: the
// counts of uses have the same distribution.
func Full() Effort { return Effort{Rounds: 10_000, Step: 10} }

// Quick returns an effort for an overview, and for tests.
func Quick() Effort { return Effort{Rounds: 1000, Step: 50} }

// Run runs all experiments. tell is called with the name of each before it runs.
func Run(e Effort, tell func(string)) (*Report, error) {
	r := &Report{}
	for _, part := range []struct {
		name string
		run  func(*Report, Effort) error
	}{
		{"000, 002: ping-pong", pingPongs},
		{"000, 002: spectrum of reuse", spectra},
		{"000: put and get", oneSided},
		{"000, 002: collectives", collectives},
		{"000, 002: applications", applications},
		{"001: rendezvous", rendezvousProtocols},
		{"003: copy offload", offloading},
		{"004: channels", channels},
		{"001, 004: NAS Parallel Benchmarks", npb},
	} {
		tell(part.name)
		if err := part.run(r, e); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return r, nil
}

// eager returns the abilities of a network without remote access: messages are sent eagerly
// or as frames.
func eager() link.Caps { return link.Caps{Name: "virtual", GatherMax: 1, EagerMax: 64 << 10} }

// rdma returns the abilities of a network that writes and reads remotely, in order, and
// does not notify.
func rdma() link.Caps {
	c := eager()
	c.Register, c.Read, c.Write, c.InOrder, c.Ordered = true, true, true, true, true
	return c
}

// measured runs a program of a job and calls look with its world afterwards.
func measured(cfg virtual.Config, program func(*virtual.Rank), look func(*virtual.World)) error {
	w, err := virtual.New(cfg)
	if err != nil {
		return err
	}
	err = w.Run(program)
	if err == nil && look != nil {
		look(w)
	}
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	return err
}

// improvement returns how much less after is than before, in percent.
func improvement(before, after float64) float64 { return 100 * (before - after) / before }

// compared runs an experiment with and without adaptive reuse, and returns the improvement
// in percent.
func compared(cfg virtual.Config, run func(virtual.Config) (float64, error)) (float64, error) {
	cfg.Model = platform.Rashti()
	before, err := run(cfg)
	if err != nil {
		return 0, err
	}
	cfg.Gather = &gather.Config{Reuse: reuse.Config{Buckets: 1 << 20, Entries: 1 << 14}}
	after, err := run(cfg)
	return improvement(before, after), err
}

// sizes are those of papers 000's and 002's figures.
var sizes = []int{128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10}
