package p2p

import (
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// pool allocates ranges of the region of unexpected messages. There are five classes of sizes, 256 B
// to 64 KiB, each four times the one before. A sender is charged the size of the class, so that
// sender and receiver count alike, and the pool cannot run out while peers keep within their credit
// (DESIGN §5, Matching). The region is address space: memory is used when a message is parked.
type pool struct {
	region link.Region
	next   uint64
	limit  uint64
	free   [len(poolClasses)][]uint64 // ranges that are free and in memory
	cold   [len(poolClasses)][]uint64 // ranges that the kernel has got back
	warm   uint64                     // bytes of free
	inUse  uint64
	peak   uint64
}

var poolClasses = [...]uint64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10}

// EagerLimit is the largest message that may be sent eagerly.
const EagerLimit = 64 << 10

func poolClass(n uint64) int {
	for i, size := range poolClasses {
		if n <= size {
			return i
		}
	}
	return -1
}

// charge returns the credit that an eager message of n bytes costs its sender. Most messages
// are of the smallest class.
func charge(n uint64) uint64 {
	if n <= poolClasses[0] {
		return poolClasses[0]
	}
	return poolClasses[poolClass(n)]
}

// poolReserve returns the address space that the pool needs for peers senders with credit for so
// many bytes together: each class may in turn hold all of it, and one payload of each sender may
// pass through at the same time.
func poolReserve(peers int, credit uint64) uint64 {
	return credit*uint64(len(poolClasses)) + uint64(peers)*EagerLimit
}

// copyReserve is the address space for eager copies of the sending side.
const copyReserve = memory.CopiesMax

// get returns n bytes. ok is false if the region is used up. In that of unexpected messages only a
// peer that exceeds its credit can cause that; in that of copies, larger free ranges are split.
func (p *pool) get(n uint64) (link.Ref, bool) {
	k := poolClass(n)
	if k < 0 {
		return link.Ref{}, false
	}
	size := poolClasses[k]
	p.inUse += size
	p.peak = max(p.peak, p.inUse)
	if f := p.free[k]; len(f) > 0 {
		off := f[len(f)-1]
		p.free[k] = f[:len(f)-1]
		p.warm -= size
		return link.Ref{Region: p.region, Off: off, Len: n}, true
	}
	if f := p.cold[k]; len(f) > 0 {
		off := f[len(f)-1]
		p.cold[k] = f[:len(f)-1]
		return link.Ref{Region: p.region, Off: off, Len: n}, true
	}
	if p.next+size > p.limit {
		p.inUse -= size
		if p.split(k) {
			return p.get(n)
		}
		return link.Ref{}, false
	}
	off := p.next
	p.next += size
	return link.Ref{Region: p.region, Off: off, Len: n}, true
}

// split makes four free ranges of class k of one of the next class.
func (p *pool) split(k int) bool {
	if k+1 == len(poolClasses) || len(p.free[k+1]) == 0 && !p.split(k+1) {
		return false
	}
	last := len(p.free[k+1]) - 1
	off := p.free[k+1][last]
	p.free[k+1] = p.free[k+1][:last]
	for i := range poolClasses[k+1] / poolClasses[k] {
		p.free[k] = append(p.free[k], off+i*poolClasses[k])
	}
	return true
}

func (p *pool) put(r link.Ref) {
	k := poolClass(r.Len)
	p.inUse -= poolClasses[k]
	p.warm += poolClasses[k]
	p.free[k] = append(p.free[k], r.Off)
}

// cool returns the largest range that is free and in memory, which the caller gives back to the
// kernel. Preconditions: there is one.
func (p *pool) cool() link.Ref {
	k := len(poolClasses) - 1
	for len(p.free[k]) == 0 {
		k--
	}
	last := len(p.free[k]) - 1
	off := p.free[k][last]
	p.free[k], p.cold[k] = p.free[k][:last], append(p.cold[k], off)
	p.warm -= poolClasses[k]
	return link.Ref{Region: p.region, Off: off, Len: poolClasses[k]}
}

// passing returns n bytes for a payload that passes through the pool and costs no credit: each
// peer has one at a time. All of them are of the largest class, whatever their size, so that
// they use no room of other classes.
func (p *pool) passing(n uint64) (link.Ref, bool) {
	ref, ok := p.get(max(n, EagerLimit))
	ref.Len = n
	return ref, ok
}

// passed gives such a range back.
func (p *pool) passed(r link.Ref) {
	r.Len = EagerLimit
	p.put(r)
}
