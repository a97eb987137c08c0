package ranks

// Allowance bounds the bytes, or locks, or lists, that the ranks of this sidecar, or its peers, may make
// it keep. It bounds their sum, because most of them keep little, and guarantees a share to each, which
// others cannot use up.
type Allowance struct {
	most, share int64
	used        int64
}

// NewAllowance makes an allowance of most for all owners, with a share for each in addition.
func NewAllowance(most, share int64) Allowance { return Allowance{most: most, share: share} }

// Divide makes an allowance of most for all owners with their shares, which are a quarter of it.
func Divide(most int64, owners int) Allowance {
	if owners < 2 {
		return NewAllowance(most, 0)
	}
	share := most / 4 / int64(owners)
	return NewAllowance(most-share*int64(owners), share)
}

// Most returns the bound for all owners together.
func (b *Allowance) Most() int64 { return b.most }

// Share returns what each owner may keep whatever the others do.
func (b *Allowance) Share() int64 { return b.share }

// Used returns what all owners keep.
func (b *Allowance) Used() int64 { return b.used }

// Fits reports whether an owner that keeps that much may keep n more.
func (b *Allowance) Fits(kept, n int64) bool { return b.used+n <= b.most || kept+n <= b.share }

// Add adds n to what an owner keeps; n may be negative.
func (b *Allowance) Add(kept *int64, n int64) {
	*kept += n
	b.used += n
}
