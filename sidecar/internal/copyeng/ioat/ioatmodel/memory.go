package ioatmodel

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	page = 4096
	// firstIOVA is below 4 GiB, so that some addresses need 32 bits and others more.
	firstIOVA = 1<<32 - 64*page
)

// memory is what the device can access. A reader holds the lock while it accesses the bytes, so
// that they are not accessed any more when unmap has returned.
type memory struct {
	mu      sync.RWMutex
	regions []mapped
	next    uint64
	used    uint64
	limit   uint64
}

type mapped struct {
	iova uint64
	mem  []byte
}

func (t *memory) add(mem []byte) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit != 0 && t.used+uint64(len(mem)) > t.limit {
		return 0, fmt.Errorf("ioatmodel: mapping %d bytes: %w", len(mem), unix.ENOMEM)
	}
	t.used += uint64(len(mem))
	iova := t.next + uint64(address(mem)%page)
	t.next = (iova+uint64(len(mem))+page-1)/page*page + page
	t.regions = append(t.regions, mapped{iova, mem})
	return iova, nil
}

// Alloc returns memory that begins at a page.
func (m *Model) Alloc(n int) ([]byte, error) {
	mem := make([]byte, n+page)
	at := int(-address(mem) % page)
	return mem[at : at+n : at+n], nil
}

// Free returns an error if the device can access the memory.
func (m *Model) Free(mem []byte) error {
	m.mem.mu.RLock()
	defer m.mem.mu.RUnlock()
	for _, r := range m.mem.regions {
		if address(r.mem) == address(mem) {
			return errors.New("ioatmodel: memory is freed that is mapped")
		}
	}
	return nil
}

func (t *memory) unmap(mem []byte, iova uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.regions, func(r mapped) bool { return r.iova == iova && len(r.mem) == len(mem) })
	if i < 0 {
		return errors.New("ioatmodel: the memory is not mapped")
	}
	t.used -= uint64(len(mem))
	t.regions = slices.Delete(t.regions, i, i+1)
	return nil
}

func (t *memory) clear() { t.set(nil) }

func (t *memory) set(regions []mapped) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.regions, t.used = regions, 0
}

// at returns n bytes at an address, or nil if they are not all in one region. The caller holds
// the lock.
func (t *memory) at(iova, n uint64) []byte {
	for _, r := range t.regions {
		size := uint64(len(r.mem))
		if off := iova - r.iova; iova >= r.iova && n <= size && off <= size-n {
			return r.mem[off : off+n : off+n]
		}
	}
	return nil
}
