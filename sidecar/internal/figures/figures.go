// Package figures runs the experiments of papers 000, 001, 002 and 004 with this
// engine in virtual time, on the machines that the papers describe (package
// platform), and puts what comes out beside what they measured. Nothing is fitted: a
// figure that does not come out is shown with the reason.
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

// Row is one number of a paper beside ours.
type Row struct {
	Paper  string // and figure or table
	What   string
	Unit   string
	Theirs float64
	Ours   float64 // NaN: it does not run yet
	Bound  bool    // Theirs is a bound that Ours should be under, not a value
	Law    string  // which part of the model makes it
	Note   string  // why it differs, or what it waits for
}

// Runs reports whether there is a figure of ours.
func (r *Row) Runs() bool { return !math.IsNaN(r.Ours) }

// Ratio is ours to theirs.
func (r *Row) Ratio() float64 { return r.Ours / r.Theirs }

// Near reports whether ours is within a third of theirs, or keeps the bound.
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

// Plot is one figure of a paper, as ours.
type Plot struct {
	Name   string // of its file
	Title  string
	X, Y   string
	Sizes  bool // X is a message size: logarithmic, in bytes
	Curves []Curve
}

// Report is everything.
type Report struct {
	Rows  []Row
	Plots []Plot
}

// Effort is how much of the papers' repetition is done.
type Effort struct {
	Rounds int  // of each operation; the papers' 10,000 is 10000
	Step   int  // of the spectrum's 1000 buffers, every Step-th is used; at least 4
	Ends   bool // only the smallest and the largest message of each figure
}

// of chooses among the sizes of a figure.
func (e Effort) of(sizes []int) []int {
	if e.Ends {
		return []int{sizes[0], sizes[len(sizes)-1]}
	}
	return sizes
}

// Full is the effort of `outrigger figures`. The spectrum uses every tenth buffer:
// reuse counts have the same distribution.
func Full() Effort { return Effort{Rounds: 10_000, Step: 10} }

// Quick is enough for a look, and for tests.
func Quick() Effort { return Effort{Rounds: 1000, Step: 50} }

// Run runs all experiments. tell is called with what comes next.
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

// eager is a network without remote access: messages go eagerly or as frames.
func eager() link.Caps { return link.Caps{Name: "virtual", GatherMax: 1, EagerMax: 64 << 10} }

// rdma is one that writes and reads remotely, in order, and does not notify.
func rdma() link.Caps {
	c := eager()
	c.Register, c.Read, c.Write, c.InOrder, c.Ordered = true, true, true, true, true
	return c
}

// measured runs a program of a job and returns what its world is like afterwards.
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

// improvement is how much less after is than before, in percent.
func improvement(before, after float64) float64 { return 100 * (before - after) / before }

// compared runs an experiment with and without adaptive reuse, and returns the
// improvement in percent.
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

// sizes of papers 000's and 002's figures.
var sizes = []int{128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10}
