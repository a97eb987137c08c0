package linktest

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Memory is regions for a link to reach.
type Memory struct {
	regions [][]byte
	taken   map[link.Region][]byte

	// Make makes the bytes of a region, for links that reach only what is made their
	// way; nil: any will do.
	Make func(region link.Region, n int) []byte
}

// NewMemory makes memory without regions; region 0 is no memory.
func NewMemory() *Memory { return &Memory{regions: make([][]byte, 1)} }

// Bytes finds a range (link.Memory). A link that reaches for memory that was
// taken away dies of it.
func (m *Memory) Bytes(r link.Ref) []byte {
	return m.regions[r.Region][r.Off : r.Off+r.Len : r.Off+r.Len]
}

// add makes a region of n bytes.
func (m *Memory) add(n int) link.Ref {
	region, b := link.Region(len(m.regions)), []byte(nil)
	if m.Make != nil {
		b = m.Make(region, n)
	} else {
		b = make([]byte, n)
	}
	m.regions = append(m.regions, b)
	return link.Ref{Region: region, Len: uint64(n)}
}

// fill makes a region of n bytes that no other region is likely to equal.
func (m *Memory) fill(n int, seed uint64) link.Ref {
	ref := m.add(n)
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	_, _ = rand.NewChaCha8(key).Read(m.Bytes(ref)) // always all of it
	return ref
}

// take takes a region away.
func (m *Memory) take(ref link.Ref) {
	if m.taken == nil {
		m.taken = map[link.Region][]byte{}
	}
	m.taken[ref.Region], m.regions[ref.Region] = m.regions[ref.Region], nil
}

// giveBack undoes take, and returns the region's bytes.
func (m *Memory) giveBack(ref link.Ref) []byte {
	m.regions[ref.Region] = m.taken[ref.Region]
	return m.regions[ref.Region]
}

// NewRegion makes a region of n bytes.
func (m *Memory) NewRegion(n int) link.Ref { return m.add(n) }
