package ranks

// Allowance bounds the bytes that the ranks of this sidecar, or its peers, may make it keep. It bounds
// their sum, because most of them keep little, and guarantees a share to each, which others cannot use
// up.
type Allowance struct {
	most, share int64
	used        int64
}

// NewAllowance makes an allowance of most bytes for all owners, with a share for each.
func NewAllowance(most, share int64) Allowance { return Allowance{most: most, share: share} }

// Most returns the bound for all owners together.
func (b *Allowance) Most() int64 { return b.most }

// Share returns what each owner may keep whatever the others do.
func (b *Allowance) Share() int64 { return b.share }

// Used returns what all owners keep.
func (b *Allowance) Used() int64 { return b.used }

// Fits reports whether an owner that has kept bytes may keep n more.
func (b *Allowance) Fits(kept, n int64) bool { return b.used+n <= b.most || kept+n <= b.share }

// Add adds n bytes to what an owner keeps; n may be negative.
func (b *Allowance) Add(kept *int64, n int64) {
	*kept += n
	b.used += n
}
