package reuse

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// node is a buffer in a balanced binary tree, which paper 002 (section 3.2.1, figure 3)
// tried for the usage table before it chose the hash table. It is perfectly balanced, and
// has only the key and its uses: no tree that grows is faster.
type node struct {
	off         uint64
	uses        uint32
	left, right *node
}

// balanced makes a tree of sorted offsets.
func balanced(offs []uint64) *node {
	if len(offs) == 0 {
		return nil
	}
	m := len(offs) / 2
	return &node{off: offs[m], left: balanced(offs[:m]), right: balanced(offs[m+1:])}
}

// find returns nil if off is not in the tree.
func (n *node) find(off uint64) *node {
	for n != nil && n.off != off {
		if off < n.off {
			n = n.left
		} else {
			n = n.right
		}
	}
	return n
}

// TestBalanced checks that the reference finds its buffers.
func TestBalanced(t *testing.T) {
	offs := []uint64{1, 3, 5, 7, 9, 11}
	root := balanced(offs)
	for off := range uint64(13) {
		if got := root.find(off); (got != nil) != slices.Contains(offs, off) || got != nil && got.off != off {
			t.Errorf("offset %d: %v", off, got)
		}
	}
}

// BenchmarkSearch measures paper 002's figure 3: buffers looked up in a random order in the
// usage table, which makes a decision as well, and in a tree, as their number grows.
func BenchmarkSearch(b *testing.B) {
	for n := 100; n <= 100_000; n *= 10 {
		b.Run(fmt.Sprint("table-", n), func(b *testing.B) { benchmarkUse(b, n, true) })
		b.Run(fmt.Sprint("tree-", n), func(b *testing.B) { benchmarkTree(b, n) })
	}
}

func benchmarkTree(b *testing.B, n int) {
	offs := make([]uint64, n)
	for i := range offs {
		offs[i] = uint64(i) * 4096
	}
	root := balanced(offs)
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(n, func(i, j int) { offs[i], offs[j] = offs[j], offs[i] })
	b.ResetTimer()
	k := 0
	for range b.N {
		root.find(offs[k]).uses++
		if k++; k == n {
			k = 0
		}
	}
}
