package e2e

import (
	"fmt"
	"slices"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// start starts a collective that is drawn.
func (m *model[T]) start() (under, error) {
	kinds := []func() (under, error){
		m.barrier, m.bcast, m.reduce, m.allreduce, m.scan, m.reduceScatter, m.gather, m.scatter,
		m.allgather, m.alltoall, m.gatherv, m.scatterv, m.allgatherv, m.alltoallv,
	}
	return kinds[m.draw.IntN(len(kinds))]()
}

func (m *model[T]) root() int { return m.draw.IntN(m.c.Size()) }

func (m *model[T]) barrier() (under, error) {
	r, err := m.c.Ibarrier()
	return under{"barrier", r, func() error { return nil }}, err
}

func (m *model[T]) bcast() (under, error) {
	n, root, m2 := m.count(), m.root(), *m
	mem := m.memory(n)
	if m.c.Rank() == root {
		m.block(mem, root, 0)
	}
	r, err := outrigger.Ibcast(m.c, mem, root)
	return under{fmt.Sprintf("bcast of %d", n), r, yields(mem, func() []T { return m2.block(make([]T, n), root, 0) })}, err
}

// folded returns the result of a reduction of n elements over ranks 0 to last.
func (m *model[T]) folded(op func(f, g T) T, n, last int) func() []T {
	m2 := *m
	return func() []T { return fold(op, last, func(r int) []T { return m2.block(make([]T, n), r, 0) }) }
}

func (m *model[T]) reduce() (under, error) {
	n, root := m.count(), m.root()
	op, f := m.op()
	in, want := m.input(n), m.folded(f, n, m.c.Size()-1)
	var out []T
	if m.c.Rank() == root {
		out = m.memory(n)
	} else {
		want = func() []T { return nil }
	}
	r, err := outrigger.Ireduce(m.c, in, out, op, root)
	return under{fmt.Sprintf("reduce of %d", n), r, yields(out, want)}, err
}

// inPlace draws whether in is the output as well.
func (m *model[T]) inPlace(in []T) []T {
	if m.own.IntN(3) == 0 {
		return in
	}
	return m.memory(len(in))
}

func (m *model[T]) allreduce() (under, error) {
	n := m.count()
	op, f := m.op()
	in := m.input(n)
	out := m.inPlace(in)
	r, err := outrigger.Iallreduce(m.c, in, out, op)
	return under{fmt.Sprintf("allreduce of %d", n), r, yields(out, m.folded(f, n, m.c.Size()-1))}, err
}

func (m *model[T]) scan() (under, error) {
	n := m.count()
	op, f := m.op()
	in := m.input(n)
	out := m.inPlace(in)
	r, err := outrigger.Iscan(m.c, in, out, op)
	return under{fmt.Sprintf("scan of %d", n), r, yields(out, m.folded(f, n, m.c.Rank()))}, err
}

func (m *model[T]) reduceScatter() (under, error) {
	counts := m.counts()
	op, f := m.op()
	all, first := total(counts), total(counts[:m.c.Rank()])
	in, out := m.input(all), m.memory(counts[m.c.Rank()])
	want := m.folded(f, all, m.c.Size()-1)
	r, err := outrigger.IreduceScatter(m.c, in, out, counts, op)
	return under{fmt.Sprintf("reduce-scatter of %v", counts), r, yields(out, func() []T { return want()[first : first+len(out)] })}, err
}

func (m *model[T]) gather() (under, error) {
	n, root := m.each(), m.root()
	return m.gathered(fmt.Sprintf("gather of %d", n), alike(m.c.Size(), n), root, func(in, out []T) (outrigger.Request, error) {
		return outrigger.Igather(m.c, in, out, root)
	})
}

func (m *model[T]) gatherv() (under, error) {
	counts, root := m.counts(), m.root()
	return m.gathered(fmt.Sprintf("gatherv of %v", counts), counts, root, func(in, out []T) (outrigger.Request, error) {
		return outrigger.Igatherv(m.c, in, out, counts, nil, root)
	})
}

func (m *model[T]) allgather() (under, error) {
	n := m.each()
	return m.gathered(fmt.Sprintf("allgather of %d", n), alike(m.c.Size(), n), m.c.Rank(), func(in, out []T) (outrigger.Request, error) {
		return outrigger.Iallgather(m.c, in, out)
	})
}

func (m *model[T]) allgatherv() (under, error) {
	counts := m.counts()
	return m.gathered(fmt.Sprintf("allgatherv of %v", counts), counts, m.c.Rank(), func(in, out []T) (outrigger.Request, error) {
		return outrigger.Iallgatherv(m.c, in, out, counts, nil)
	})
}

// gathered starts a collective that brings every rank's block to root.
func (m *model[T]) gathered(what string, counts []int, root int, call func(in, out []T) (outrigger.Request, error)) (under, error) {
	m2, want := *m, func() []T { return nil }
	var out []T
	if m.c.Rank() == root {
		out = m.memory(total(counts))
		want = func() (all []T) {
			for r, n := range counts {
				all = append(all, m2.block(make([]T, n), r, 0)...)
			}
			return all
		}
	}
	r, err := call(m.input(counts[m.c.Rank()]), out)
	return under{what, r, yields(out, want)}, err
}

func (m *model[T]) scatter() (under, error) {
	n, root := m.each(), m.root()
	return m.scattered(fmt.Sprintf("scatter of %d", n), alike(m.c.Size(), n), root, func(in, out []T) (outrigger.Request, error) {
		return outrigger.Iscatter(m.c, in, out, root)
	})
}

func (m *model[T]) scatterv() (under, error) {
	counts, root := m.counts(), m.root()
	return m.scattered(fmt.Sprintf("scatterv of %v", counts), counts, root, func(in, out []T) (outrigger.Request, error) {
		return outrigger.Iscatterv(m.c, in, counts, nil, out, root)
	})
}

func (m *model[T]) scattered(what string, counts []int, root int, call func(in, out []T) (outrigger.Request, error)) (under, error) {
	m2, me := *m, m.c.Rank()
	var in []T
	if me == root {
		in = m.memory(total(counts))
		copy(in, m.blocks(root, counts))
	}
	out := m.memory(counts[me])
	r, err := call(in, out)
	return under{what, r, yields(out, func() []T { return m2.block(make([]T, counts[me]), root, me) })}, err
}

func (m *model[T]) alltoall() (under, error) {
	n := m.each()
	counts := alike(m.c.Size(), n)
	in, out, m2 := m.memory(n*m.c.Size()), m.memory(n*m.c.Size()), *m
	copy(in, m.blocks(m.c.Rank(), counts))
	r, err := outrigger.Ialltoall(m.c, in, out)
	return under{fmt.Sprintf("alltoall of %d", n), r, yields(out, m2.toMe(counts))}, err
}

// alltoallv: every rank sends counts[i] elements to rank i.
func (m *model[T]) alltoallv() (under, error) {
	counts := m.counts()
	mine := alike(m.c.Size(), counts[m.c.Rank()])
	in, out, m2 := m.memory(total(counts)), m.memory(total(mine)), *m
	copy(in, m.blocks(m.c.Rank(), counts))
	r, err := outrigger.Ialltoallv(m.c, in, counts, nil, out, mine, nil)
	return under{fmt.Sprintf("alltoallv of %v", counts), r, yields(out, m2.toMe(counts))}, err
}

// toMe returns the blocks of all ranks for this rank.
func (m *model[T]) toMe(counts []int) func() []T {
	return func() (all []T) {
		for r := range counts {
			all = append(all, m.block(make([]T, counts[m.c.Rank()]), r, m.c.Rank())...)
		}
		return all
	}
}

func alike(ranks, n int) []int { return slices.Repeat([]int{n}, ranks) }

func total(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
