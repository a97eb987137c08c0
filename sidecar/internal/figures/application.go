package figures

import (
	"math"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/virtual"
)

// trace is an application's use of its eager buffers, made from Table 1 of paper 000:
// a part of its messages comes from buffers that are used again and again, and each
// of the others from a buffer of its own.
type trace struct {
	name   string
	low    int     // sizes, bytes: spread evenly from low, so that
	mean   int     // their mean is the paper's
	uses   int     // of a buffer that is used again (average over processes)
	reused float64 // part of the accesses
}

var traces = []trace{
	{"CG", 8, 8, 7904, 0.4294}, {"LU", 1560, 1600, 3749, 0.9871}, {"AMG", 8, 770, 119, 0.7686}, {"MILC", 8, 2876, 2049, 0.4426},
}

// buffersOf is how many buffers of a trace are used again, at most at one time.
const buffersOf = 8

// messages yields place and size of each message of a trace: rounds of them.
func (t *trace) messages(rounds int) func(yield func(off, n int) bool) {
	return func(yield func(int, int) bool) {
		fresh, again, debt := 0, 0, 0.0
		for range rounds {
			if debt += t.reused; debt >= 1 {
				debt--
				// The buffers of a generation take turns until each has had its uses.
				generation := again / (t.uses * buffersOf)
				slot := generation*buffersOf + again%buffersOf
				again++
				if !yield(4<<20+slot*8192, t.size(slot)) {
					return
				}
				continue
			}
			slot := fresh % 512 // their pages come again when nobody remembers them
			fresh++
			if !yield(slot*8192+fresh%64*64, t.size(fresh)) {
				return
			}
		}
	}
}

// size is that of a buffer: by the golden ratio, evenly over the trace's range.
func (t *trace) size(buffer int) int {
	_, part := math.Modf(float64(buffer+1) * (math.Sqrt(5) - 1) / 2)
	return t.low + int(2*part*float64(t.mean-t.low))
}

// sends is the time that a trace spends in sends, each from its call until its buffer
// may be used again, while the receiver waits (000, section 5.2).
func (t *trace) sends(rounds int) func(virtual.Config) (float64, error) {
	return func(cfg virtual.Config) (took float64, err error) {
		cfg.PodOf, cfg.Caps, cfg.Arena = []int32{0, 1}, eager(), 12<<20
		err = measured(cfg, func(r *virtual.Rank) {
			r.Barrier() // and so connected
			for off, n := range t.messages(rounds) {
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
	for i, t := range traces {
		gain, err := compared(virtual.Config{}, t.sends(10*e.Rounds))
		if err != nil {
			return err
		}
		gains[t.name] = gain
		plot.Curves = append(plot.Curves, Curve{Name: t.name, Points: []Point{{float64(i), 0}, {float64(i), gain}}})
	}
	r.Plots = append(r.Plots, plot)
	const law = "part of the messages from buffers used again x (C - V) / time of a send"
	const ours = "a send here ends when the peer's engine has taken it over, and not when the adapter has"
	r.Rows = append(r.Rows,
		Row{Paper: "000 fig. 9", What: "LU: time in sends less", Unit: "%", Theirs: 18.3, Ours: gains["LU"], Law: law, Note: ours},
		Row{Paper: "002 fig. 7", What: "LU, in 2009", Unit: "%", Theirs: 10.6, Ours: gains["LU"], Law: law},
		Row{Paper: "000 fig. 9", What: "MILC: time in sends less", Unit: "%", Theirs: 7, Ours: gains["MILC"], Law: law, Note: ours},
		Row{Paper: "002 fig. 7", What: "MILC, in 2009", Unit: "%", Theirs: 8.1, Ours: gains["MILC"], Law: law, Note: "Table 1 says how much of the accesses is reuse, not of which bytes"},
		Row{Paper: "000, section 5.2", What: "CG: no harm", Unit: "%", Theirs: 1, Bound: true, Ours: gains["CG"], Law: "cut-off at 128 B"},
		Row{Paper: "000, section 5.2", What: "AMG: little harm", Unit: "%", Theirs: 2, Bound: true, Ours: gains["AMG"], Law: "speculation that does not pay ends when its grant is used up"},
	)
	return nil
}
