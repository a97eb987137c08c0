package lu

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// wave sends the edges of planes of one sweep from rank to rank: from the preceding
// neighbours along x and y to the following ones. Each direction has depth buffers, so
// that one plane is received and another one sent while a third is computed.
type wave struct {
	step int // +1: towards higher x and y
	in   [2]*flow
	out  [2]*flow
}

const depth = 2

// flow sends the edges of one axis to one neighbour, or receives them from it.
type flow struct {
	comm     *outrigger.Comm
	peer     int // rank of the neighbour, or none
	tag      int
	buffers  [depth][]float64 // arena memory
	requests [depth]outrigger.Request
	busy     [depth]bool
	turn     int
	ahead    int // planes whose receive is still to be posted
}

// newWave returns a wave that uses the tags tag and tag+1.
func newWave(comm *outrigger.Comm, arena *bench.Arena, d domain, step, tag int) (*wave, error) {
	w := &wave{step: step}
	for axis := range 2 {
		numbers := len(vector{}) * (d.end[1-axis] - d.start[1-axis])
		var err error
		if w.in[axis], err = newFlow(comm, arena, d.neighbour(axis, -step), tag+axis, numbers, "edges to receive"); err != nil {
			return nil, err
		}
		if w.out[axis], err = newFlow(comm, arena, d.neighbour(axis, step), tag+axis, numbers, "edges to send"); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func newFlow(comm *outrigger.Comm, arena *bench.Arena, peer, tag, numbers int, purpose string) (*flow, error) {
	f := &flow{comm: comm, peer: peer, tag: tag}
	if peer == none {
		return f, nil
	}
	for i := range f.buffers {
		var err error
		if f.buffers[i], err = bench.Buffer[float64](arena, numbers, purpose); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// begin posts the first receives of a sweep through that many planes.
func (w *wave) begin(planes int) {
	for _, f := range w.in {
		f.ahead, f.turn = planes, 0
	}
}

// receive receives the edges of plane k that precede this rank's own points.
func (w *wave) receive(ctx context.Context, s *solver, k int) error {
	for axis, f := range w.in {
		if f.peer == none {
			continue
		}
		edge, err := f.next(ctx)
		if err != nil {
			return fmt.Errorf("plane %d from rank %d: %w", k, f.peer, err)
		}
		s.eachOfEdge(axis, -w.step, 1, k, func(n, p int) { copy(s.r[p][:], edge[n*len(vector{}):]) })
		f.turn = (f.turn + 1) % depth
	}
	return nil
}

// next waits for the next plane, after it has posted the receives of the following ones.
func (f *flow) next(ctx context.Context) ([]float64, error) {
	for i := range depth {
		slot := (f.turn + i) % depth
		if f.busy[slot] || f.ahead == 0 {
			continue
		}
		request, err := outrigger.Irecv(f.comm, f.buffers[slot], f.peer, f.tag)
		if err != nil {
			return nil, err
		}
		f.requests[slot], f.busy[slot] = request, true
		f.ahead--
	}
	f.busy[f.turn] = false
	_, err := f.requests[f.turn].Wait(ctx)
	return f.buffers[f.turn], err
}

// send sends this rank's last points of plane k to the following neighbours.
func (w *wave) send(ctx context.Context, s *solver, k int) error {
	for axis, f := range w.out {
		if f.peer == none {
			continue
		}
		if err := f.settle(ctx, f.turn); err != nil {
			return fmt.Errorf("plane before %d to rank %d: %w", k, f.peer, err)
		}
		edge := f.buffers[f.turn]
		s.eachOfEdge(axis, w.step, 0, k, func(n, p int) { copy(edge[n*len(vector{}):], s.r[p][:]) })
		request, err := outrigger.Isend(f.comm, edge, f.peer, f.tag)
		if err != nil {
			return fmt.Errorf("plane %d to rank %d: %w", k, f.peer, err)
		}
		f.requests[f.turn], f.busy[f.turn] = request, true
		f.turn = (f.turn + 1) % depth
	}
	return nil
}

// settle waits until the buffer in a slot may be written again.
func (f *flow) settle(ctx context.Context, slot int) error {
	if !f.busy[slot] {
		return nil
	}
	f.busy[slot] = false
	_, err := f.requests[slot].Wait(ctx)
	return err
}

// flush waits for all sends.
func (w *wave) flush(ctx context.Context) error {
	for _, f := range w.out {
		for slot := range depth {
			if err := f.settle(ctx, slot); err != nil {
				return fmt.Errorf("last planes to rank %d: %w", f.peer, err)
			}
		}
	}
	return nil
}

// eachOfEdge calls f for the points of plane k, numbered, that are beyond points after
// this rank's last one in the direction of step along an axis (0: the last one).
func (s *solver) eachOfEdge(axis, step, beyond, k int, f func(n, p int)) {
	across := 1 - axis
	at := [2]int{}
	if step > 0 {
		at[axis] = s.n[axis] - 1 + beyond
	} else {
		at[axis] = -beyond
	}
	for n := range s.end[across] - s.start[across] {
		at[across] = s.start[across] + n
		f(n, s.at(at[0], at[1], k))
	}
}
