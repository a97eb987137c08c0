package coll

// position is an offset in one of the buffers.
type position struct {
	buf Buf
	off int64
}

func (p position) plus(bytes int64) position { return position{p.buf, p.off + bytes} }

// partition divides a buffer into numbered blocks.
type partition struct {
	base position
	// Blocks of equal size; the last ones are shorter, or empty, if the total
	// is no multiple. Used if counts is nil.
	chunk, total int64
	// Blocks of given sizes and positions, in elements.
	counts, displs []int64
	elem           int64
}

// even divides count elements into n blocks without splitting an element.
func even(base position, count, elem int64, n int) partition {
	chunk := (count + int64(n) - 1) / int64(n)
	return partition{base: base, chunk: chunk * elem, total: count * elem}
}

// blocks returns n blocks of the given bytes each.
func blocks(base position, bytes int64, n int) partition {
	return partition{base: base, chunk: bytes, total: bytes * int64(n)}
}

// off returns the offset of block i. In partitions without gaps i may also be the number of
// blocks.
func (p *partition) off(i int) int64 {
	if p.displs != nil {
		return p.displs[i] * p.elem
	}
	return min(int64(i)*p.chunk, p.total)
}

func (p *partition) at(i int) position { return p.base.plus(p.off(i)) }

func (p *partition) len(i int) int64 {
	if p.counts != nil {
		return p.counts[i] * p.elem
	}
	return p.off(i+1) - p.off(i)
}

// span returns the bytes of blocks i to j-1 of a partition without gaps.
func (p *partition) span(i, j int) int64 { return p.off(j) - p.off(i) }

// extent returns the end of the block that ends last.
func (p *partition) extent(n int) int64 {
	if p.counts == nil {
		return p.total
	}
	end := int64(0)
	for i := range n {
		if c := p.len(i); c > 0 {
			end = max(end, p.off(i)+c)
		}
	}
	return end
}
