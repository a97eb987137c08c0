package main

import (
	"errors"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// indexed sends the lower triangle of a matrix around, rows last to first, and receives
// it as the upper one.
func (t *tour) indexed() error {
	next, previous := (t.me+1)%t.n, (t.me+t.n-1)%t.n
	for _, n := range []int{2, 40, 300} {
		lower, upper := outrigger.Indexed{}, outrigger.Indexed{}
		for row := n - 1; row >= 0; row-- {
			lower.Counts, lower.Displs = append(lower.Counts, row+1), append(lower.Displs, row*n)
			upper.Counts, upper.Displs = append(upper.Counts, row+1), append(upper.Displs, (n-1-row)*n+n-1-row)
		}
		out, in, want := make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)
		for i := range out {
			out[i] = float64(t.me*1_000_000 + i)
		}
		for row := range n {
			for k := range row + 1 {
				want[(n-1-row)*n+n-1-row+k] = float64(previous*1_000_000 + row*n + k)
			}
		}
		r, err := outrigger.IrecvIndexed(t.c, in, upper, previous, 4)
		if err != nil {
			return err
		}
		if err := outrigger.SendIndexed(t.ctx, t.c, out, lower, next, 4); err != nil {
			return err
		}
		st, err := r.Wait(t.ctx)
		if err := errors.Join(err, equal(fmt.Sprint("triangle of ", n), in, want)); err != nil {
			return err
		}
		if outrigger.Count[float64](st) != lower.Len() || st.Source != previous {
			return fmt.Errorf("status %+v, want %d elements of rank %d", st, lower.Len(), previous)
		}
	}
	return nil
}
