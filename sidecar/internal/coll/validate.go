package coll

import "fmt"

const (
	// MaxRanks bounds Size: 1,024 nodes of 1,024 ranks.
	MaxRanks = 1 << 20
	// MaxElem bounds Elem, in bytes.
	MaxElem = 1 << 24
	// MaxBytes bounds each buffer of a plan. It leaves room for sums of two.
	MaxBytes = 1 << 48
	// packedRanksMax bounds the blocks that one round of an alltoall copies one by one, which
	// those by Bruck and in two levels do.
	packedRanksMax = 4096
)

// validate checks each field, and that no product of them is out of bounds. It sets Layout
// from Pods, and clears fields that have no meaning for the kind.
func (p *Params) validate() error {
	switch {
	case p.Kind == 0 || int(p.Kind) >= len(algorithmsOf):
		return fmt.Errorf("coll: kind %d is no collective operation; use Barrier to Alltoallv", p.Kind)
	case p.Size < 1 || p.Size > MaxRanks:
		return fmt.Errorf("coll: Size %d is not between 1 and %d", p.Size, MaxRanks)
	case p.Rank < 0 || p.Rank >= p.Size:
		return fmt.Errorf("coll: Rank %d is not between 0 and %d", p.Rank, p.Size-1)
	case p.Kind.Rooted() && (p.Root < 0 || p.Root >= p.Size):
		return fmt.Errorf("coll: Root %d is not between 0 and %d", p.Root, p.Size-1)
	case p.InPlace && (p.Kind == Alltoall || p.Kind == Alltoallv):
		return fmt.Errorf("coll: %v has no in-place form; copy the input first", p.Kind)
	}
	if !p.Kind.Rooted() {
		p.Root = 0
	} else if p.Rank != p.Root {
		p.InPlace = false // only the root has both buffers
	}
	if p.Kind == Barrier {
		p.Count, p.Elem = 0, 0
	} else if err := p.validateSizes(); err != nil {
		return err
	}
	return p.validatePods()
}

func (p *Params) validatePods() error {
	if p.Layout == nil && p.Pods != nil && len(p.Pods) != p.Size {
		return fmt.Errorf("coll: Pods has %d entries for %d ranks; give one each or none", len(p.Pods), p.Size)
	}
	p.settleLayout()
	if p.Layout != nil && len(p.Layout.pod) != p.Size {
		return fmt.Errorf("coll: Layout is for %d ranks, not %d; make one for this communicator", len(p.Layout.pod), p.Size)
	}
	return nil
}

// settleLayout makes Layout from Pods if there is no Layout.
func (p *Params) settleLayout() {
	if p.Layout == nil && p.Pods != nil {
		p.Layout, _ = NewLayout(p.Pods) // validatePods has checked the length, which is the only possible error
	}
}

// validateSizes checks the fields in elements and bytes.
func (p *Params) validateSizes() error {
	if p.Elem < 1 || p.Elem > MaxElem {
		return fmt.Errorf("coll: Elem %d is not between 1 and %d bytes", p.Elem, MaxElem)
	}
	limit := int64(MaxBytes) / int64(p.Elem) // elements
	blocks := int64(1)
	switch p.Kind {
	case ReduceScatter, Gather, Scatter, Allgather, Alltoall:
		blocks = int64(p.Size)
	}
	if p.Count < 0 || int64(p.Count) > limit/blocks {
		return fmt.Errorf("coll: Count %d is not between 0 and %d", p.Count, limit/blocks)
	}
	atRoot := p.Rank == p.Root
	switch {
	case p.Kind == ReduceScatter && p.Counts != nil:
		return p.validateBlocks("Counts", p.Counts, "Displs", nil, limit)
	case p.Kind == Allgatherv, p.Kind == Gatherv && atRoot, p.Kind == Scatterv && atRoot:
		return p.validateBlocks("Counts", p.Counts, "Displs", p.Displs, limit)
	case p.Kind == Alltoallv:
		if err := p.validateBlocks("SCounts", p.SCounts, "SDispls", p.SDispls, limit); err != nil {
			return err
		}
		return p.validateBlocks("RCounts", p.RCounts, "RDispls", p.RDispls, limit)
	}
	return nil
}

// validateBlocks checks counts and displs of a buffer of at most limit
// elements. Counts without displs are added up.
func (p *Params) validateBlocks(cname string, counts []int64, dname string, displs []int64, limit int64) error {
	if len(counts) != p.Size {
		return fmt.Errorf("coll: %s has %d entries for %d ranks; %v needs one each", cname, len(counts), p.Size, p.Kind)
	}
	if displs != nil && len(displs) != p.Size {
		return fmt.Errorf("coll: %s has %d entries for %d ranks; give one each, or nil for packed blocks", dname, len(displs), p.Size)
	}
	sum := int64(0)
	for i, c := range counts {
		if c < 0 || c > limit-sum {
			return fmt.Errorf("coll: %s[%d] is %d; counts must not be negative, nor add up to more than %d", cname, i, c, limit)
		}
		sum += c
		if displs != nil && (displs[i] < 0 || displs[i] > limit-c) {
			return fmt.Errorf("coll: %s[%d] is %d; the block must lie between 0 and %d elements", dname, i, displs[i], limit)
		}
	}
	return nil
}

func checkBytes(name string, n int64) error {
	if n < 0 || n > 4*MaxBytes {
		return fmt.Errorf("coll: %s of %d bytes is more than %d; use smaller counts", name, n, int64(4*MaxBytes))
	}
	return nil
}
