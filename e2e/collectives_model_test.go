package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// collectivesCommand runs the test binary as a rank that calls collectives.
const (
	collectivesCommand = "outrigger-collectives"
	collectivesRight   = "every collective right"
)

func collectives(args []string) int {
	rounds, err1 := strconv.Atoi(args[0])
	most, err2 := strconv.Atoi(args[1])
	if err1 != nil || err2 != nil {
		return 2
	}
	if err := compareCollectives(rounds, most); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func compareCollectives(rounds, most int) error {
	ctx := context.Background()
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	c := s.World()
	draw := rand.New(rand.NewPCG(uint64(c.Size()), uint64(most))) // alike on all ranks
	own := rand.New(rand.NewPCG(uint64(c.Rank()), 5))             // what ranks may differ in
	for round := range rounds {
		salt := draw.Uint64()
		switch round % 3 {
		case 0:
			err = several(ctx, &model[uint64]{c: c, draw: draw, own: own, most: most, salt: salt, half: 32})
		case 1:
			err = several(ctx, &model[uint8]{c: c, draw: draw, own: own, most: most, salt: salt, half: 4})
		case 2:
			err = several(ctx, &model[int32]{c: c, draw: draw, own: own, most: most, salt: salt, half: 15})
		}
		if err != nil {
			return fmt.Errorf("rank %d of %d, round %d: %w", c.Rank(), c.Size(), round, err)
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if c.Rank() == 0 {
		_, _ = fmt.Fprintln(os.Stdout, collectivesRight)
	}
	return s.Close()
}

type element interface{ ~uint8 | ~int32 | ~uint64 }

// model computes the input of every rank to the collectives of one round.
type model[T element] struct {
	c         *outrigger.Comm
	draw, own *rand.Rand
	most      int
	salt      uint64
	half      uint // bits of one half of an element, for compose
	taken     [][]T
}

// under is a collective under way.
type under struct {
	what  string
	r     outrigger.Request
	check func() error
}

// several starts up to three collectives and waits for all.
func several[T element](ctx context.Context, m *model[T]) error {
	var all []under
	for range 1 + m.draw.IntN(3) {
		m.salt++
		u, err := m.start()
		if err != nil {
			return fmt.Errorf("%s: %w", u.what, err)
		}
		all = append(all, u)
	}
	for _, u := range all {
		if _, err := u.r.Wait(ctx); err != nil {
			return fmt.Errorf("%s: %w", u.what, err)
		}
		if err := u.check(); err != nil {
			return fmt.Errorf("%s: %w", u.what, err)
		}
	}
	for _, mem := range m.taken {
		if err := outrigger.Free(m.c.Session(), mem); err != nil {
			return err
		}
	}
	m.taken = nil
	return nil
}

// value returns element i of block b of rank r.
func (m *model[T]) value(r, b, i int) T {
	x := m.salt + uint64(r)<<40 + uint64(b)<<20 + uint64(i)
	x *= 0x9e3779b97f4a7c15
	x ^= x >> 29
	return T(x) & m.mask()
}

// mask keeps the bits that compose uses, so that all operations stay in them.
func (m *model[T]) mask() T { return T(uint64(1)<<m.half<<m.half - 1) }

// compose composes functions x -> a*x+b, with a and b in half an element each. The operation
// is associative and not commutative.
func (m *model[T]) compose(f, g T) T {
	low := T(1)<<m.half - 1
	a, b := uint64(f>>m.half&low), uint64(f&low)
	return T(a*uint64(g>>m.half&low))&low<<m.half | T(a*uint64(g&low)+b)&low
}

func (m *model[T]) sum(f, g T) T { return (f + g) & m.mask() }

func (m *model[T]) largest(f, g T) T { return max(f, g) }

// op draws an operation, and returns it with its function of two elements.
func (m *model[T]) op() (outrigger.Op, func(f, g T) T) {
	user := func(commutative bool, f func(a, b T) T) outrigger.Op {
		return outrigger.OpFunc(commutative, func(inout, in []T) {
			for i := range inout {
				inout[i] = f(in[i], inout[i])
			}
		})
	}
	switch m.draw.IntN(4) {
	case 0:
		return outrigger.Max, m.largest
	case 1:
		return user(true, m.sum), m.sum
	}
	return user(false, m.compose), m.compose
}

// count draws the number of elements of a block: often a small odd number.
func (m *model[T]) count() int {
	few := []int{0, 1, 2, 3, 7, 33, m.most / 3, m.most}
	return few[m.draw.IntN(len(few))]
}

// each draws the number of elements of a block of which every rank has one. With many ranks
// the blocks are small.
func (m *model[T]) each() int {
	if m.c.Size() < 16 {
		return m.count() / m.c.Size()
	}
	return m.count()
}

// counts draws the sizes of the blocks of all ranks: equal ones, one block only, or any.
func (m *model[T]) counts() []int {
	counts := make([]int, m.c.Size())
	switch m.draw.IntN(3) {
	case 0:
		counts[m.draw.IntN(len(counts))] = m.count()
	case 1:
		for i := range counts {
			counts[i] = m.count() / len(counts)
		}
	case 2:
		n := m.count() / len(counts)
		for i := range counts {
			counts[i] = n
		}
	}
	return counts
}

// memory returns private memory, or memory of the arena, drawn by each rank.
func (m *model[T]) memory(n int) []T {
	if m.own.IntN(2) == 0 {
		return make([]T, n)
	}
	mem, err := outrigger.Alloc[T](m.c.Session(), n)
	if err != nil {
		return make([]T, n)
	}
	m.taken = append(m.taken, mem)
	clear(mem)
	return mem
}

// block fills mem with block b of rank r.
func (m *model[T]) block(mem []T, r, b int) []T {
	for i := range mem {
		mem[i] = m.value(r, b, i)
	}
	return mem
}

func (m *model[T]) input(n int) []T { return m.block(m.memory(n), m.c.Rank(), 0) }

// blocks returns the blocks of one rank, one after the other.
func (m *model[T]) blocks(r int, counts []int) []T {
	var all []T
	for b, n := range counts {
		all = append(all, m.block(make([]T, n), r, b)...)
	}
	return all
}

// fold combines the results of f for ranks 0 to last, in rank order.
func fold[T element](op func(f, g T) T, last int, f func(r int) []T) []T {
	acc := f(0)
	for r := 1; r <= last; r++ {
		for i, x := range f(r) {
			acc[i] = op(acc[i], x)
		}
	}
	return acc
}

// yields compares out with the result of want when the collective has ended.
func yields[T element](out []T, want func() []T) func() error {
	return func() error {
		w := want()
		if !slices.Equal(out[:len(w)], w) {
			i := 0
			for out[i] == w[i] {
				i++
			}
			return fmt.Errorf("element %d of %d is %#x, want %#x", i, len(w), out[i], w[i])
		}
		return nil
	}
}
