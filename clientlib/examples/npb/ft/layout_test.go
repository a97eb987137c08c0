package ft

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// exchanged returns the result of an alltoall of the ranks' blocks.
func exchanged(blocks [][]complex128, block int) [][]complex128 {
	got := make([][]complex128, len(blocks))
	for to := range got {
		for from := range blocks {
			got[to] = append(got[to], blocks[from][to*block:(to+1)*block]...)
		}
	}
	return got
}

// The value of each point is its index in the box. It is sent to the division by y,
// checked there, and sent back.
func TestDivisions(t *testing.T) {
	p := problem{nx: 2, ny: 8, nz: 16}
	for ranks := 1; ranks <= 8; ranks *= 2 {
		var layouts []layout
		var packed [][]complex128
		for rank := range ranks {
			l, err := newLayout(p, ranks, rank)
			if err != nil {
				t.Fatal(err)
			}
			u := make([]complex128, l.elements())
			for i := range u {
				u[i] = complex(float64(l.firstZ*p.ny*p.nx+i), 0) // [z][y][x]
			}
			blocks := make([]complex128, l.elements())
			l.planesToBlocks(u, blocks)
			layouts, packed = append(layouts, l), append(packed, blocks)
		}
		back := make([][]complex128, ranks)
		for rank, blocks := range exchanged(packed, layouts[0].blockElements) {
			l := layouts[rank]
			u := make([]complex128, l.elements())
			l.blocksToColumns(blocks, u)
			for i, got := range u {
				y, z, x := l.firstY+i/(p.nz*p.nx), i/p.nx%p.nz, i%p.nx
				if want := (z*p.ny+y)*p.nx + x; real(got) != float64(want) {
					t.Fatalf("%d ranks, rank %d: (%d,%d,%d) has %v, want %d", ranks, rank, x, y, z, got, want)
				}
			}
			back[rank] = make([]complex128, l.elements())
			l.columnsToBlocks(u, back[rank])
		}
		for rank, blocks := range exchanged(back, layouts[0].blockElements) {
			l := layouts[rank]
			u := make([]complex128, l.elements())
			l.blocksToPlanes(blocks, u)
			for i, got := range u {
				if want := l.firstZ*p.ny*p.nx + i; real(got) != float64(want) {
					t.Fatalf("%d ranks, rank %d: place %d has %v after coming back, want %d", ranks, rank, i, got, want)
				}
			}
		}
	}
}

func TestRanksThatDoNotSuit(t *testing.T) {
	for _, ranks := range []int{0, 3, 6, 64} {
		if _, err := newLayout(problems[bench.W], ranks, 0); !errors.Is(err, bench.ErrRanks) {
			t.Errorf("%d ranks for 128 x 128 x 32 points: %v, want ErrRanks", ranks, err)
		}
	}
}

func TestWaveNumbers(t *testing.T) {
	for i, want := range []int{0, 1, 2, 3, -4, -3, -2, -1} {
		if got := wave(i, 8); got != want {
			t.Errorf("wave number of index %d of 8 is %d, want %d", i, got, want)
		}
	}
}
