package main

import (
	"errors"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// inPlace checks each collective that has an in-place form, with buffers in the arena
// and in Go's memory, and with different roots and sizes.
func (t *tour) inPlace() error {
	for _, n := range []int{1, 5, 3000, 20_000} {
		all, err := outrigger.Alloc[int64](t.s, n*t.n)
		if err != nil {
			return err
		}
		for _, buf := range [][]int64{all, make([]int64, n*t.n)} {
			if err := errors.Join(t.reducedInPlace(buf, n), t.gatheredInPlace(buf, n, n%t.n)); err != nil {
				return fmt.Errorf("blocks of %d: %w", n, err)
			}
		}
		if err := outrigger.Free(t.s, all); err != nil {
			return err
		}
	}
	return nil
}

// term returns the value that rank contributes to element i of a reduction.
func term(rank, i int) int64 { return int64((rank + 1) * (i + 3)) }

// terms returns the sums over ranks 0 to upTo-1 of n elements from element from on.
func terms(upTo, from, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		for r := range upTo {
			out[i] += term(r, from+i)
		}
	}
	return out
}

func (t *tour) reducedInPlace(buf []int64, n int) error {
	mine := make([]int64, len(buf))
	for i := range mine {
		mine[i] = term(t.me, i)
	}
	size, root := len(buf), n%t.n
	counts := make([]int, t.n) // the first rank's block is one longer, the last one's shorter
	for i := range counts {
		counts[i] = n
	}
	counts[0]++
	counts[t.n-1]--
	own := 0
	for _, k := range counts[:t.me] {
		own += k
	}
	atRoot, before := mine, mine
	if t.me == root {
		atRoot = terms(t.n, 0, size)
	}
	if t.me > 0 {
		before = terms(t.me, 0, size)
	}
	for _, x := range []struct {
		name string
		run  func() error
		want []int64
	}{
		{"allreduce", func() error { return outrigger.AllreduceInPlace(t.ctx, t.c, buf, outrigger.Sum) }, terms(t.n, 0, size)},
		{"reduce", func() error { return outrigger.ReduceInPlace(t.ctx, t.c, buf, outrigger.Sum, root) }, atRoot},
		{"scan", func() error { return outrigger.ScanInPlace(t.ctx, t.c, buf, outrigger.Sum) }, terms(t.me+1, 0, size)},
		{"exscan", func() error { return outrigger.ExscanInPlace(t.ctx, t.c, buf, outrigger.Sum) }, before},
		{"reduce-scatter", func() error { return outrigger.ReduceScatterInPlace(t.ctx, t.c, buf, nil, outrigger.Sum) }, terms(t.n, t.me*n, n)},
		{"reduce-scatter by counts", func() error { return outrigger.ReduceScatterInPlace(t.ctx, t.c, buf, counts, outrigger.Sum) }, terms(t.n, own, counts[t.me])},
	} {
		copy(buf, mine)
		if err := errors.Join(x.run(), equal(x.name+" in place", buf[:len(x.want)], x.want)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) gatheredInPlace(buf []int64, n, root int) error {
	whole := make([]int64, len(buf))
	for i := range whole {
		whole[i] = term(i/n, i%n)
	}
	mine := whole[t.me*n : t.me*n+n]
	own := buf[t.me*n : t.me*n+n]
	clear(buf)
	copy(own, mine)
	if err := errors.Join(outrigger.AllgatherInPlace(t.ctx, t.c, buf), equal("allgather in place", buf, whole)); err != nil {
		return err
	}
	clear(buf)
	copy(own, mine)
	if t.me != root {
		if err := outrigger.GatherInPlace(t.ctx, t.c, own, root); err != nil {
			return err
		}
		clear(own)
		return errors.Join(outrigger.ScatterInPlace(t.ctx, t.c, own, root), equal("scatter", own, mine))
	}
	if err := errors.Join(outrigger.GatherInPlace(t.ctx, t.c, buf, root), equal("gather in place", buf, whole)); err != nil {
		return err
	}
	return errors.Join(outrigger.ScatterInPlace(t.ctx, t.c, buf, root), equal("scatter in place", buf, whole))
}
