package cg

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// NPB reports these numbers of nonzeros ("final nonzero count in sparse").
func TestNonzeroCounts(t *testing.T) {
	for class, want := range map[bench.Class]int{bench.S: 78148, bench.W: 508402} {
		p := problems[class]
		all := span{0, p.n}
		if got := len(newMatrix(p, all, all).value); got != want {
			t.Errorf("class %s: %d nonzeros, want %d", class, got, want)
		}
	}
}

type position struct{ row, col int }

// entries lists a block's elements by global position.
func entries(t *testing.T, m *matrix, rows, cols span) map[position]float64 {
	t.Helper()
	all := make(map[position]float64, len(m.value))
	for j := range rows.len() {
		for k := m.start[j]; k < m.start[j+1]; k++ {
			at := position{rows.lo + j, cols.lo + int(m.column[k])}
			if _, twice := all[at]; twice {
				t.Fatalf("element %v occurs twice", at)
			}
			all[at] = m.value[k]
		}
	}
	return all
}

func TestMatrixIsSymmetricWithAFullDiagonal(t *testing.T) {
	p := problems[bench.S]
	whole := span{0, p.n}
	all := entries(t, newMatrix(p, whole, whole), whole, whole)
	for at, v := range all {
		if w := all[position{at.col, at.row}]; v != w {
			// The products are formed in both orders and may round apart.
			if d := v - w; d > 1e-15 || d < -1e-15 {
				t.Fatalf("element %v is %v, its mirror %v", at, v, w)
			}
		}
	}
	for i := range p.n {
		if _, ok := all[position{i, i}]; !ok {
			t.Fatalf("no diagonal element in row %d", i)
		}
	}
}

// Blocks are generated independently on their ranks; together they must be the
// matrix of one rank, bit for bit.
func TestBlocksAreTheWholeMatrix(t *testing.T) {
	p := problems[bench.S]
	whole := span{0, p.n}
	want := entries(t, newMatrix(p, whole, whole), whole, whole)
	for _, ranks := range []int{2, 4, 8} {
		found := 0
		for r := range ranks {
			g, err := newGrid(p.n, ranks, r)
			if err != nil {
				t.Fatal(err)
			}
			for at, v := range entries(t, newMatrix(p, g.rows, g.cols), g.rows, g.cols) {
				if want[at] != v {
					t.Fatalf("%d ranks: rank %d has %v at %v, want %v", ranks, r, v, at, want[at])
				}
				found++
			}
		}
		if found != len(want) {
			t.Errorf("%d ranks: %d elements, want %d", ranks, found, len(want))
		}
	}
}

func TestGeneratingVectors(t *testing.T) {
	const n, nonzer = 1400, 7
	g := newGenerator(n, nonzer)
	for row := range n {
		v := g.next(row)
		if len(v.index) != nonzer && len(v.index) != nonzer+1 {
			t.Fatalf("vector %d has %d elements", row, len(v.index))
		}
		seen := map[int32]bool{}
		for k, i := range v.index {
			if i < 0 || i >= n || seen[i] {
				t.Fatalf("vector %d: position %d out of range or twice", row, i)
			}
			seen[i] = true
			if int(i) == row && v.value[k] != 0.5 {
				t.Fatalf("vector %d has %v at its own position", row, v.value[k])
			}
		}
		if !seen[int32(row)] {
			t.Fatalf("vector %d lacks its own position", row)
		}
	}
	for i, taken := range g.taken {
		if taken {
			t.Fatalf("position %d is still marked", i)
		}
	}
}

// alone returns a solver for one rank, which needs no messages.
func alone(t *testing.T, p problem) *solver {
	t.Helper()
	g, err := newGrid(p.n, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	ex := &exchange{
		grid: g, partial: make([]float64, p.n), inbox: make([]float64, p.n),
		result: make([]float64, p.n), scalar: make([]float64, 4),
	}
	return newSolver(newMatrix(p, g.rows, g.cols), ex)
}

func TestZetaOnOneRank(t *testing.T) {
	for _, class := range []bench.Class{bench.S, bench.W} {
		p := problems[class]
		steps := 0
		zeta, err := alone(t, p).iterate(t.Context(), p.shift, p.iterations, func(done, total int, note string) {
			steps++
			if done != steps || total != p.iterations || note == "" {
				t.Errorf("progress %d/%d %q at step %d", done, total, note, steps)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if c := (bench.Check{Value: zeta, Reference: p.zeta, Tolerance: tolerance}); !c.Passed() {
			t.Errorf("class %s: zeta %.14f, want %.14f", class, zeta, p.zeta)
		}
		if steps != p.iterations {
			t.Errorf("class %s: %d progress calls, want %d", class, steps, p.iterations)
		}
	}
}

// Another matrix must not verify: the check is not vacuous.
func TestAnotherMatrixDoesNotVerify(t *testing.T) {
	p := problems[bench.S]
	p.nonzer--
	zeta, err := alone(t, p).iterate(t.Context(), p.shift, p.iterations, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := (bench.Check{Value: zeta, Reference: p.zeta, Tolerance: tolerance}); c.Passed() {
		t.Errorf("zeta %v passes with another matrix", zeta)
	}
}
