package linktest

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Memory is a set of regions that a link accesses.
type Memory struct {
	regions  [][]byte
	detached map[link.Region][]byte

	// Make returns the bytes of a region, for links that can access only memory of a
	// certain kind; nil: any memory will do.
	Make func(region link.Region, n int) []byte
}

// NewMemory returns memory without regions; region 0 is no memory.
func NewMemory() *Memory { return &Memory{regions: make([][]byte, 1)} }

// Bytes returns a range (link.Memory). It panics if the region is detached.
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

// fill makes a region of n bytes that are unlikely to equal those of another region.
func (m *Memory) fill(n int, seed uint64) link.Ref {
	ref := m.add(n)
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	_, _ = rand.NewChaCha8(key).Read(m.Bytes(ref)) // always fills all of it
	return ref
}

// detach removes a region, so that a link that accesses it panics.
func (m *Memory) detach(ref link.Ref) {
	if m.detached == nil {
		m.detached = map[link.Region][]byte{}
	}
	m.detached[ref.Region], m.regions[ref.Region] = m.regions[ref.Region], nil
}

// reattach reverses detach, and returns the region's bytes.
func (m *Memory) reattach(ref link.Ref) []byte {
	m.regions[ref.Region] = m.detached[ref.Region]
	return m.regions[ref.Region]
}

// Fill makes a region of n bytes that are unlikely to equal those of another one.
func (m *Memory) Fill(n int, seed uint64) link.Ref { return m.fill(n, seed) }

// NewRegion makes a region of n bytes.
func (m *Memory) NewRegion(n int) link.Ref { return m.add(n) }
