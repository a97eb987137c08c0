package cg

import "math"

// matrix is one rank's block in compressed rows. Column indices count from the
// block's first column.
type matrix struct {
	start  []int32 // row j is start[j] to start[j+1]
	column []int32
	value  []float64
}

// newMatrix generates the block rows x cols of the benchmark's matrix
//
//	A = Σ ωᵏ xₖxₖᵀ + (rcond − shift)·I,   ωⁿ = rcond
//
// with the sparse random xₖ of generator (RNR-94-007 chapter 2, "Kernel CG").
func newMatrix(p problem, rows, cols span) *matrix {
	vectors := make([]sparseVector, p.n)
	g := newGenerator(p.n, p.nonzer)
	for k := range vectors {
		vectors[k] = g.next(k)
	}
	t := countTerms(vectors, rows, cols)
	t.addOuterProducts(vectors, math.Pow(conditionNumber, 1/float64(p.n)))
	t.addDiagonal(conditionNumber - p.shift)
	return t.merge()
}

// terms are the block's entries before equal positions are added up, in
// compressed rows and, in a row, in the order of the generating vectors; NPB
// adds them in this order.
type terms struct {
	rows, cols span
	start      []int32
	next       []int32 // the first free index of each row
	column     []int32
	value      []float64
}

// countTerms sizes the rows, which is cheaper than growing them.
func countTerms(vectors []sparseVector, rows, cols span) *terms {
	t := &terms{rows: rows, cols: cols, start: make([]int32, rows.len()+1), next: make([]int32, rows.len())}
	for _, v := range vectors {
		inside := int32(0)
		for _, i := range v.index {
			if cols.contains(int(i)) {
				inside++
			}
		}
		for _, i := range v.index {
			if rows.contains(int(i)) {
				t.start[int(i)-rows.lo+1] += inside
			}
		}
	}
	for i := rows.lo; i < rows.hi; i++ {
		if cols.contains(i) {
			t.start[i-rows.lo+1]++ // the diagonal
		}
	}
	for j := range t.next {
		t.start[j+1] += t.start[j]
		t.next[j] = t.start[j]
	}
	total := t.start[len(t.next)]
	t.column, t.value = make([]int32, total), make([]float64, total)
	return t
}

func (t *terms) add(row, col int, value float64) {
	j := row - t.rows.lo
	k := t.next[j]
	t.column[k], t.value[k] = int32(col-t.cols.lo), value
	t.next[j] = k + 1
}

func (t *terms) addOuterProducts(vectors []sparseVector, ratio float64) {
	weight := 1.0
	for _, v := range vectors {
		for a, col := range v.index {
			if !t.cols.contains(int(col)) {
				continue
			}
			scaled := weight * v.value[a]
			for b, row := range v.index {
				if t.rows.contains(int(row)) {
					t.add(int(row), int(col), v.value[b]*scaled)
				}
			}
		}
		weight *= ratio
	}
}

func (t *terms) addDiagonal(value float64) {
	for i := t.rows.lo; i < t.rows.hi; i++ {
		if t.cols.contains(i) {
			t.add(i, i, value)
		}
	}
}

// merge adds up the terms of each position. It works in place: a merged row is
// never longer than its terms, so the write position stays behind.
func (t *terms) merge() *matrix {
	sum := make([]float64, t.cols.len())
	seen := make([]bool, t.cols.len())
	start := make([]int32, len(t.start))
	end := int32(0)
	for j := range t.next {
		first := end
		for k := t.start[j]; k < t.start[j+1]; k++ {
			c := t.column[k]
			sum[c] += t.value[k]
			if !seen[c] {
				seen[c] = true
				t.column[end] = c
				end++
			}
		}
		for k := first; k < end; k++ {
			c := t.column[k]
			t.value[k] = sum[c]
			sum[c], seen[c] = 0, false
		}
		start[j+1] = end
	}
	return &matrix{start: start, column: t.column[:end:end], value: t.value[:end:end]}
}

// multiply sets w[j] to row j of the block times v; w has an element for each row
// and v for each column.
func (m *matrix) multiply(v, w []float64) {
	start := m.start[: len(w)+1 : len(w)+1]
	for j := range w {
		lo, hi := start[j], start[j+1]
		column := m.column[lo:hi]
		value := m.value[lo:hi]
		value = value[:len(column)]
		sum := 0.0
		for k, c := range column {
			sum += value[k] * v[c]
		}
		w[j] = sum
	}
}
