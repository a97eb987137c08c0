package main

import (
	"fmt"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
)

// vectors holds the buffers of the collectives. Each element of a rank's input is the
// rank plus one, so that every result is known.
type vectors struct{ in, out []float64 }

const elementBytes = 8

// collectives measures each operation at each size. Only the calls are timed. Before each
// call there is a barrier, so that a rank that finishes early does not start the next one.
func (m *meter) collectives() error {
	n := bench.CollectiveBytesMax(m.c.Size()) / elementBytes * m.c.Size()
	var v vectors
	var err error
	if v.in, err = buffer[float64](m, n); err != nil {
		return err
	}
	if v.out, err = buffer[float64](m, n); err != nil {
		return err
	}
	for i := range v.in {
		v.in[i] = float64(m.c.Rank() + 1)
	}
	for _, call := range m.method.Calls(m.o.ops, m.c.Size()) {
		f, err := m.collective(&v, call)
		if err == nil {
			err = m.print(f)
		}
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", call.Op, call.Bytes, err)
		}
	}
	return nil
}

func (m *meter) collective(v *vectors, call bench.Call) (bench.Figure, error) {
	elements := call.Bytes / elementBytes
	clear(v.out)
	if err := m.call(v, call.Op, elements); err != nil {
		return bench.Figure{}, err
	}
	if err := m.check(v, call.Op, elements); err != nil {
		return bench.Figure{}, err
	}
	if _, err := m.calls(v, call.Op, elements, call.WarmUp); err != nil {
		return bench.Figure{}, err
	}
	median, least, err := repeat(func() (float64, error) {
		mine, err := m.calls(v, call.Op, elements, call.Count)
		if err != nil {
			return 0, err
		}
		us := []float64{mine.Seconds() * 1e6 / float64(call.Count)}
		err = outrigger.Allreduce(m.ctx, m.c, us, us, outrigger.Max)
		return us[0], err
	})
	return bench.Figure{Test: bench.Collectives, Op: call.Op, Ranks: m.c.Size(), Bytes: call.Bytes, US: median, USMin: least}, err
}

// calls makes count calls and returns the time that this rank spent in them.
func (m *meter) calls(v *vectors, op string, elements, count int) (time.Duration, error) {
	var spent time.Duration
	for range count {
		if err := m.c.Barrier(m.ctx); err != nil {
			return 0, err
		}
		begin := time.Now()
		if err := m.call(v, op, elements); err != nil {
			return 0, err
		}
		spent += time.Since(begin)
	}
	return spent, nil
}

func (m *meter) call(v *vectors, op string, n int) error {
	all := n * m.c.Size()
	switch op {
	case "barrier":
		return m.c.Barrier(m.ctx)
	case "bcast":
		if m.first() {
			return outrigger.Bcast(m.ctx, m.c, v.in[:n], 0)
		}
		return outrigger.Bcast(m.ctx, m.c, v.out[:n], 0)
	case "reduce":
		return outrigger.Reduce(m.ctx, m.c, v.in[:n], v.out[:n], outrigger.Sum, 0)
	case "allreduce":
		return outrigger.Allreduce(m.ctx, m.c, v.in[:n], v.out[:n], outrigger.Sum)
	case "reduce-scatter":
		counts := make([]int, m.c.Size())
		for i := range counts {
			counts[i] = n
		}
		return outrigger.ReduceScatter(m.ctx, m.c, v.in[:all], v.out[:n], counts, outrigger.Sum)
	case "gather":
		return outrigger.Gather(m.ctx, m.c, v.in[:n], v.out[:all], 0)
	case "scatter":
		return outrigger.Scatter(m.ctx, m.c, v.in[:all], v.out[:n], 0)
	case "allgather":
		return outrigger.Allgather(m.ctx, m.c, v.in[:n], v.out[:all])
	case "alltoall":
		return outrigger.Alltoall(m.ctx, m.c, v.in[:all], v.out[:all])
	}
	return fmt.Errorf("no operation is called %q", op)
}

// check compares this rank's result with the expected one, so that the time of a wrong
// result is not reported.
func (m *meter) check(v *vectors, op string, n int) error {
	ranks := m.c.Size()
	want, results := func(int) float64 { return float64(ranks * (ranks + 1) / 2) }, n
	switch op {
	case "barrier":
		return nil
	case "bcast", "reduce":
		if m.first() == (op == "bcast") {
			return nil // the root of a bcast, and all but the root of a reduce, get nothing
		}
		if op == "bcast" {
			want = func(int) float64 { return 1 }
		}
	case "scatter":
		want = func(int) float64 { return 1 }
	case "gather", "allgather", "alltoall":
		if op == "gather" && !m.first() {
			return nil
		}
		want, results = func(i int) float64 { return float64(i/n + 1) }, n*ranks
	}
	for i, got := range v.out[:results] {
		if got != want(i) {
			return fmt.Errorf("wrong result: element %d of rank %d is %g, want %g", i, m.c.Rank(), got, want(i))
		}
	}
	return nil
}
