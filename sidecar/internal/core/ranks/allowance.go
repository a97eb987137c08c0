package ranks

// Allowance is what the ranks of this sidecar, or all peers, may make it keep, in bytes. It
// bounds their sum, because most of them keep little: each has a share of its own all the
// same, which others cannot use up.
type Allowance struct {
	most, share int64
	used        int64
}

// NewAllowance bounds what all owners keep, and has a share for each of them.
func NewAllowance(most, share int64) Allowance { return Allowance{most: most, share: share} }

// Most is the bound of what all owners keep.
func (b *Allowance) Most() int64 { return b.most }

// Share is what each owner may keep whatever the others do.
func (b *Allowance) Share() int64 { return b.share }

// Used is what all owners keep.
func (b *Allowance) Used() int64 { return b.used }

// Fits reports whether an owner that has kept bytes may keep n more.
func (b *Allowance) Fits(kept, n int64) bool { return b.used+n <= b.most || kept+n <= b.share }

// Add accounts n bytes more, or less, that an owner keeps.
func (b *Allowance) Add(kept *int64, n int64) {
	*kept += n
	b.used += n
}
