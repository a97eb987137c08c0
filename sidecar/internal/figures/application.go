package figures

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/pattern"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/virtual"
)

// sends returns an experiment with the time that a trace spends in sends, each from its
// call until its buffer may be used again, while the receiver waits (000, section 5.2).
func sends(t *pattern.Trace, rounds int) func(virtual.Config) (float64, error) {
	return func(cfg virtual.Config) (took float64, err error) {
		cfg.PodOf, cfg.Caps, cfg.Arena = []int32{0, 1}, eager(), pattern.Extent
		err = measured(cfg, func(r *virtual.Rank) {
			r.Barrier() // makes the connection
			for off, n := range t.Messages(rounds) {
				if r.Number == 1 {
					r.Wait(r.Recv(0, 1, 0, 8192))
					continue
				}
				begin := r.Now()
				r.Wait(r.Send(1, 1, off, n))
				took += r.Now() - begin
			}
		}, nil)
		return took, err
	}
}

func applications(r *Report, e Effort) error {
	gains := map[string]float64{}
	plot := Plot{Name: "000-fig9-applications", Title: "000, fig. 9: time in sends, by Table 1", X: "CG, LU, AMG, MILC", Y: "improvement, %"}
	for i, t := range pattern.Traces {
		gain, err := compared(virtual.Config{}, sends(&t, 10*e.Rounds))
		if err != nil {
			return err
		}
		gains[t.Name] = gain
		plot.Curves = append(plot.Curves, Curve{Name: t.Name, Points: []Point{{float64(i), 0}, {float64(i), gain}}})
	}
	r.Plots = append(r.Plots, plot)
	const law = "part of the messages from buffers used again x (C - V) / time of a send"
	const ours = "the paper does not say what time in sends includes besides the copy; here a send ends when the peer has taken its buffer's bytes over"
	r.Rows = append(r.Rows,
		Row{Paper: "000 fig. 9", What: "LU: time in sends less", Unit: "%", Theirs: 18.3, Ours: gains["LU"], Law: law, Note: ours},
		Row{Paper: "002 fig. 7", What: "LU, in 2009", Unit: "%", Theirs: 10.6, Ours: gains["LU"], Law: law},
		Row{Paper: "000 fig. 9", What: "MILC: time in sends less", Unit: "%", Theirs: 7, Ours: gains["MILC"], Law: law, Note: ours},
		Row{Paper: "002 fig. 7", What: "MILC, in 2009", Unit: "%", Theirs: 8.1, Ours: gains["MILC"], Law: law},
		Row{Paper: "000, section 5.2", What: "CG: no harm", Unit: "%", Theirs: 1, Bound: true, Ours: gains["CG"], Law: "cut-off at 128 B"},
		Row{Paper: "000, section 5.2", What: "AMG: little harm", Unit: "%", Theirs: 2, Bound: true, Ours: gains["AMG"], Law: "speculation that does not pay ends when its grant is used up"},
	)
	return nil
}
