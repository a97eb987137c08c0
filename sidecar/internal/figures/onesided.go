package figures

import (
	"iter"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/pattern"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/virtual"
)

// fenced returns an experiment with the duration of a put or get of n bytes and of the
// fence that ends it: a flush and a barrier (000, section 5.1.2).
func fenced(buffers iter.Seq[int], n int, get bool) func(virtual.Config) (float64, error) {
	return func(cfg virtual.Config) (took float64, err error) {
		cfg.PodOf, cfg.Caps, cfg.Arena = []int32{0, 1}, eager(), inbox+128<<10
		err = measured(cfg, func(r *virtual.Rank) {
			r.Wait(r.Window(0, inbox))
			r.Barrier()
			begin, rounds := r.Now(), 0
			for off := range buffers {
				if r.Number == 0 {
					if get {
						// The copy that a get saves is made where its answer is sent. A get
						// has ended when its data has arrived: its fence flushes nothing.
						r.Wait(r.GetAt(1, inbox, off, n))
					} else {
						r.Wait(r.Put(1, off, n), r.Flush(1))
					}
				}
				r.Barrier()
				rounds++
			}
			took = (r.Now() - begin) / float64(rounds)
		}, nil)
		return took, err
	}
}

func oneSided(r *Report, e Effort) error {
	ops := []struct {
		name string
		get  bool
	}{{"MPI_Put", false}, {"MPI_Get", true}}
	single := Plot{Name: "000-fig6-onesided", Title: "000, fig. 6: put and get with a fence", X: "message", Y: "improvement, %", Sizes: true}
	spread := Plot{Name: "000-fig7-onesided-spectrum", Title: "000, fig. 7: the same with buffers used 1 to 1000 times", X: "message", Y: "improvement, %", Sizes: true}
	for _, op := range ops {
		c, err := overSizes(op.name, e, func(n int) (float64, error) {
			return compared(virtual.Config{}, fenced(again(e.Rounds), n, op.get))
		})
		if err != nil {
			return err
		}
		single.Curves = append(single.Curves, c)
		c, err = overSizes(op.name, e, func(n int) (float64, error) {
			return compared(virtual.Config{}, fenced(pattern.Spectrum(e.Step, (n+4095)&^4095), n, op.get))
		})
		if err != nil {
			return err
		}
		spread.Curves = append(spread.Curves, c)
	}
	r.Plots = append(r.Plots, single, spread)
	put, get := single.Curves[0].last(), single.Curves[1].last()
	r.Rows = append(r.Rows,
		Row{
			Paper: "000 fig. 6a", What: "put of 8 KB and its fence: time less", Unit: "%", Theirs: 20, Ours: put,
			Law:  "(C - V of Table 2, one-sided) / (copies + wire + fence)",
			Note: "here a put is a frame that its target copies into the window, and the fence is a flush and a barrier: two messages more than the paper's, where the adapter writes into the window and a flag ends the epoch",
		},
		Row{
			Paper: "000 fig. 6b", What: "get of 8 KB and its fence: time less", Unit: "%", Theirs: 17, Ours: get,
			Law:  "the same, of the target's copy",
			Note: "here the target sends and the origin copies out of its ring; in the paper the origin reads remotely and copies once",
		},
		Row{
			Paper: "000 fig. 7", What: "spectrum: less than with one buffer, put and get", Unit: ordering, Theirs: 1,
			Ours: yes(spread.Curves[0].last() < put && spread.Curves[1].last() < get), Law: "not all buffers reach f n_min",
		},
	)
	return nil
}
