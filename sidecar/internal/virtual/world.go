// Package virtual runs real engines in virtual time over a network whose costs are a
// platform.Model: it computes the duration of a paper's experiment on the paper's machine,
// with this engine's protocols. Nothing is random, nothing is lost, and nothing depends on
// the machine on which it runs.
//
// A node has one CPU, which its ranks and its engine share, as if the messaging engine were
// a library of the application. Its clock advances by the cost of its work; a node that
// waits advances to the next event that concerns it. Wires, adapters and memory buses are
// busy until a time, and a node that needs one waits until then.
package virtual

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/platform"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// Config configures a World.
type Config struct {
	Model  *platform.Model
	PodOf  []int32 // node of each rank
	Caps   link.Caps
	Core   core.Config    // protocol and sizes; the other fields are filled in
	Gather *gather.Config // adaptive reuse; nil: everything is copied
	Path   reuse.Path     // path of eager messages: their copies cost what the model has for it
	Arena  int            // bytes of each rank; default 8 MiB

	// The fields below are for models with a Pull.
	Offload bool // large copies are those of the copy engine
	Cached  bool // ranks of a node share a cache that holds what they copy
	Free    bool // fragments are not copied at all, as in paper 003's figure 3
}

// World is one job.
type World struct {
	cfg   Config
	nodes []*node
	ranks []*Rank
	alone queue // work of adapters without their node's CPU
}

// New makes a job. Run runs a program on it, once.
func New(cfg Config) (*World, error) {
	if cfg.Arena == 0 {
		cfg.Arena = 8 << 20
	}
	w := &World{cfg: cfg}
	pods := 0
	for _, p := range cfg.PodOf {
		pods = max(pods, int(p)+1)
	}
	for i := range pods {
		if err := w.addNode(i, pods); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	for r, p := range cfg.PodOf {
		if err := w.addRank(uint32(r), w.nodes[p]); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

func (w *World) addNode(i, pods int) error {
	n := &node{world: w, self: link.Peer(i), keys: map[uint64]link.Ref{}, mine: map[link.Region]bool{}, offers: map[[2]uint32]int{}}
	w.nodes = append(w.nodes, n)
	loop := local.New(n.self, nil)
	if w.cfg.Model.Pull != nil {
		n.copies = w.newCopies(n)
		loop.SetCopies(n.copies)
	}
	cfg := w.cfg.Core
	cfg.Self, cfg.PodOf, cfg.Pods, cfg.Seed = n.self, w.cfg.PodOf, pods, 1
	cfg = cfg.Within(core.Limits{CopyBytes: 1}) // the link decides what is copied
	if w.cfg.Model.EagerBytes != 0 {
		cfg.EagerBytes = w.cfg.Model.EagerBytes
	}
	sessions := 0
	for _, p := range w.cfg.PodOf {
		if int(p) == i {
			sessions++
		}
	}
	var err error
	if n.chooser, err = w.chooser(n, sessions); err != nil {
		return err
	}
	n.engine, err = engine.New(engine.Config{
		Core: cfg, Local: &within{Link: loop, node: n}, Remote: n, Dialer: n, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, func() int64 { return int64(n.now) + 1 })
	if err != nil {
		return err
	}
	loop.SetMemory(n.engine)
	return nil
}

// chooser returns a node's adaptive reuse, with the model's costs.
func (w *World) chooser(n *node, sessions int) (*gather.Chooser, error) {
	cfg := gather.Config{Reuse: reuse.Config{Buckets: 2, Entries: 1}}
	if w.cfg.Gather != nil {
		cfg = *w.cfg.Gather
	}
	cfg.Sessions = sessions
	c, err := gather.New(cfg, pins{n}, nil)
	if err != nil || w.cfg.Gather == nil {
		return nil, err
	}
	m := w.cfg.Model
	for p, curve := range map[reuse.Path]platform.Curve{
		reuse.PathWrite: m.Copy.Write, reuse.PathSend: m.Copy.Send, reuse.PathPut: m.Copy.OneSided, reuse.PathGet: m.Copy.OneSided,
	} {
		c.Costs().Calibrate(p, samples(curve), samples(m.Register), m.Lookup)
	}
	return c, nil
}

// samples returns the measurements that a calibration on the modelled machine would make.
func samples(c platform.Curve) []reuse.Sample {
	var s []reuse.Sample
	for n := uint64(64); n <= 128<<10; n += n / 8 {
		s = append(s, reuse.Sample{Bytes: n, NS: c.At(n)})
	}
	return s
}

// Close releases what New allocated.
func (w *World) Close() error {
	var err error
	for _, r := range w.ranks {
		r.stop()
	}
	for _, n := range w.nodes {
		err = errors.Join(err, n.copies.Close())
		if n.engine != nil {
			err = errors.Join(err, n.engine.Close())
		}
	}
	return err
}

// limit is the virtual time after which a job counts as stuck.
const limit = 600e9

// Run runs program on every rank until all have returned.
func (w *World) Run(program func(*Rank)) error {
	for _, r := range w.ranks {
		r.start(program)
	}
	for {
		n, at := w.next()
		if n == nil {
			return nil
		}
		if w.alone.first() <= at {
			if err := w.alone.pop().what(nil); err != nil {
				return err
			}
			continue
		}
		n.now = max(n.now, at)
		if n.now > limit {
			return fmt.Errorf("virtual: stuck: %s", w.state())
		}
		if err := n.step(); err != nil {
			return err
		}
	}
}

// next returns the node with the next event, and its time, or nil if all programs have
// ended.
func (w *World) next() (*node, float64) {
	var first *node
	at, done := math.Inf(1), true
	for _, n := range w.nodes {
		for _, r := range n.ranks {
			done = done && r.over
		}
		if t := n.wakes(); t < at {
			first, at = n, t
		}
	}
	if done {
		return nil, at
	}
	return first, at
}

func (w *World) state() string {
	text := ""
	for _, r := range w.ranks {
		text += fmt.Sprintf("rank %d over=%v, %d requests open; ", r.Number, r.over, r.open)
	}
	return text
}

// Counts returns the sum of the reuse counters of all ranks.
func (w *World) Counts() (sum link.BufferCounts) {
	for _, n := range w.nodes {
		if n.chooser == nil {
			continue
		}
		for s := range n.ranks {
			c := n.chooser.Buffers(uint32(s))
			sum.Seen += c.Seen
			sum.Frequent += c.Frequent
			sum.Registered += c.Registered
			sum.CopiedBytes += c.CopiedBytes
			sum.GatheredBytes += c.GatheredBytes
			sum.Stopped = sum.Stopped || c.Stopped
		}
	}
	return sum
}

// SendTime returns the CPU time that a node has spent on sending, in nanoseconds: overhead,
// copies, look-ups and registrations.
func (w *World) SendTime(node int) float64 { return w.nodes[node].sending }

// CPUTime returns the CPU time that a node has spent on communication, in nanoseconds.
func (w *World) CPUTime(node int) float64 { return w.nodes[node].cpu }
