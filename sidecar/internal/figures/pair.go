package figures

import (
	"iter"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/pattern"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/virtual"
)

// inbox is the offset in the arena where a rank receives: buffers that are sent precede it.
// There is room for the buffers of a spectrum with every fourth buffer.
const inbox = 2 << 20

// pingPong returns an experiment with half the round trip of messages from given buffers,
// one round trip for each (000, section 5.1.1).
func pingPong(buffers iter.Seq[int], n int) func(virtual.Config) (float64, error) {
	return func(cfg virtual.Config) (took float64, err error) {
		cfg.PodOf, cfg.Caps, cfg.Arena = []int32{0, 1}, eager(), inbox+64<<10
		err = measured(cfg, func(r *virtual.Rank) {
			other, rounds := 1-r.Number, 0
			r.Barrier()
			begin := r.Now()
			for off := range buffers {
				in := r.Recv(other, 1, inbox, n)
				if r.Number == 0 {
					r.Wait(r.Send(other, 1, off, n), in)
				} else {
					r.Wait(in)
					r.Wait(r.Send(other, 1, off, n))
				}
				rounds++
			}
			if r.Number == 0 {
				took = (r.Now() - begin) / float64(rounds) / 2
			}
		}, nil)
		return took, err
	}
}

// again yields one buffer a number of times.
func again(rounds int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for range rounds {
			if !yield(0) {
				return
			}
		}
	}
}

// overSizes returns the curve of an experiment over the sizes.
func overSizes(name string, e Effort, run func(n int) (float64, error)) (Curve, error) {
	c := Curve{Name: name}
	for _, n := range e.of(sizes) {
		y, err := run(n)
		if err != nil {
			return c, err
		}
		c.Points = append(c.Points, Point{float64(n), y})
	}
	return c, nil
}

// at returns the value at a size, or at the smallest one.
func (c *Curve) at(size float64) float64 {
	for _, p := range c.Points {
		if p.X == size {
			return p.Y
		}
	}
	return c.Points[0].Y
}

// last returns the value at the largest size, 8 KB.
func (c *Curve) last() float64 { return c.Points[len(c.Points)-1].Y }

func pingPongs(r *Report, e Effort) error {
	plot := Plot{Name: "000-fig4-pingpong", Title: "000, fig. 4: message latency", X: "message", Y: "improvement, %", Sizes: true}
	for _, path := range []struct {
		name string
		path reuse.Path
	}{{"fast path", reuse.PathWrite}, {"non-fast path", reuse.PathSend}} {
		c, err := overSizes(path.name, e, func(n int) (float64, error) {
			return compared(virtual.Config{Path: path.path}, pingPong(again(e.Rounds), n))
		})
		if err != nil {
			return err
		}
		plot.Curves = append(plot.Curves, c)
	}
	r.Plots = append(r.Plots, plot)
	fast := plot.Curves[0]
	const law = "(C - V) / latency, less R / uses"
	r.Rows = append(r.Rows,
		Row{
			Paper: "000 fig. 4a", What: "ping-pong, 8 KB, fast path: latency less", Unit: "%", Theirs: 14, Ours: fast.last(), Law: law,
			Note: "the copy's share, 15 %, is what the paper states; the engine, its table and its cache make the rest",
		},
		Row{Paper: "002 fig. 4", What: "the same, in 2009", Unit: "%", Theirs: 14, Ours: fast.last(), Law: law},
		Row{Paper: "000 fig. 4b", What: "non-fast path: improvement below the fast path's", Unit: ordering, Theirs: 1, Ours: yes(plot.Curves[1].last() < fast.last()), Law: "Table 2: its copies cost less"},
		Row{Paper: "000 fig. 4", What: "under 128 B: no change", Unit: "%", Theirs: 0, Ours: 0, Law: "cut-off at 128 B"},
	)
	small, err := compared(virtual.Config{}, pingPong(again(e.Rounds), 100))
	r.Rows[len(r.Rows)-1].Ours = small
	return err
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func spectra(r *Report, e Effort) error {
	plot := Plot{Name: "000-fig5-spectrum", Title: "000, fig. 5: buffers used 1 to 1000 times", X: "message", Y: "improvement, %", Sizes: true}
	for _, c := range []struct {
		name   string
		path   reuse.Path
		stride func(n int) int
	}{
		{"separate pages", reuse.PathWrite, func(n int) int { return (n + 4095) &^ 4095 }},
		{"back to back", reuse.PathWrite, func(n int) int { return n }},
		{"non-fast path, separate pages", reuse.PathSend, func(n int) int { return (n + 4095) &^ 4095 }},
	} {
		curve, err := overSizes(c.name, e, func(n int) (float64, error) {
			return compared(virtual.Config{Path: c.path}, pingPong(pattern.Spectrum(e.Step, c.stride(n)), n))
		})
		if err != nil {
			return err
		}
		plot.Curves = append(plot.Curves, curve)
	}
	r.Plots = append(r.Plots, plot)
	apart, together := plot.Curves[0], plot.Curves[1]
	r.Rows = append(r.Rows,
		Row{
			Paper: "000 fig. 5a", What: "spectrum of reuse, 8 KB: latency less", Unit: "%", Theirs: 12.7, Ours: apart.last(),
			Law: "(C - V) (uses - f n_min) - R, over all buffers that reach f n_min",
		},
		Row{Paper: "002 fig. 5", What: "the same, in 2009", Unit: "%", Theirs: 12.7, Ours: apart.last(), Law: "the same"},
		Row{
			Paper: "000 fig. 5", What: "back to back is better than separate pages at 512 B", Unit: ordering, Theirs: 1, Ours: yes(together.at(512) > apart.at(512)),
			Law: "neighbours on one page share its registration",
		},
	)
	return nil
}
