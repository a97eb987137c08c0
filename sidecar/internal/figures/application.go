package figures

import (
	"math"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/virtual"
)

// trace is an application's use of its eager buffers, made from Tables 1 and 3 of
// paper 000 alone: of its accesses a part is to buffers that are used so many times
// each; those are so large a part of the buffers that are larger than 128 B, of which
// the others are used once; and what is left of the accesses are small messages.
type trace struct {
	name     string
	low      int     // sizes of buffers, bytes: spread evenly from low, so that
	mean     int     // their mean is the paper's (Table 1)
	uses     int     // of a frequent buffer: the average over processes (Table 1)
	reused   float64 // part of the accesses (Table 1)
	frequent float64 // part of the large buffers (Table 3)
}

var traces = []trace{
	{"CG", 8, 8, 7904, 0.4294, 0},
	{"LU", 1560, 1600, 3749, 0.9871, 0.329},
	{"AMG", 8, 770, 119, 0.7686, 0.087},
	{"MILC", 8, 2876, 2049, 0.4426, 0.226},
}

// buffersOf is how many buffers of a trace take turns, until each has had its uses.
const buffersOf = 8

// Where frequent buffers are, and those that are used once, 64 bytes after each other.
const (
	frequentAt = 4 << 20
	onceBytes  = 4 << 20
	smallBytes = 8
)

// once is the part of the accesses that is to buffers used once.
func (t *trace) once() float64 {
	if t.frequent == 0 {
		return 0
	}
	return t.reused * (1 - t.frequent) / t.frequent / float64(t.uses)
}

// messages yields place and size of each message of a trace: rounds of them.
func (t *trace) messages(rounds int) func(yield func(off, n int) bool) {
	return func(yield func(int, int) bool) {
		frequent, once := 0, 0
		for i := range rounds {
			off, n := 0, smallBytes
			switch due := float64(i + 1); {
			case float64(frequent) < due*t.reused-0.5:
				generation := frequent / (t.uses * buffersOf)
				slot := generation*buffersOf + frequent%buffersOf
				off, n = frequentAt+slot*8192, t.size(slot)
				frequent++
			case float64(once) < due*t.once()-0.5:
				off, n = once*64%onceBytes, t.size(once)
				once++
			}
			if !yield(off, n) {
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
	const ours = "what time in sends has beside the copy the paper does not say; here a send ends when the peer has taken its buffer's bytes over"
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
