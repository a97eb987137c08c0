package outrigger

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// arena allocates memory that is shared with the sidecar: first fit over free spans in
// address order. Adjacent free spans are merged.
type arena struct {
	everFreed atomic.Bool // the program has freed memory and may still have slices of it

	mu     sync.Mutex
	total  int
	ready  int           // number of bytes, from the start of the arena, that the sidecar has allocated; bytes after them must not be accessed
	pieces *pieces       // requests more memory of the arena from the sidecar; nil: the whole arena is allocated
	spare  []span        // free spans, sorted by offset
	used   map[int]int   // size in bytes of each allocation, by offset
	cache  map[int][]int // offsets of free blocks for the library itself, by size
}

type span struct{ off, size int }

// arenaAlign is the alignment of every allocation: a cache line.
const arenaAlign = 64

func (a *arena) init(size int) {
	a.total, a.ready = size, size
	a.spare = []span{{0, size}}
	a.used = map[int]int{}
	a.cache = map[int][]int{}
}

func (a *arena) alloc(n int) (int, error) {
	if n < 0 {
		return 0, fmt.Errorf("%w: %d bytes", ErrInvalid, n)
	}
	off, ok, err := a.find(n, true)
	if ok || err != nil {
		return off, err
	}
	return 0, fmt.Errorf("%w: %s wanted, %s of %s free; %s", ErrNoMemory, memory.Text(uint64(n)), memory.Text(uint64(a.free())), memory.Text(uint64(a.total)), raiseArena)
}

// raiseArena is the remedy for an arena that is too small.
const raiseArena = "raise memory.arena of the MPIJob, --arena of outrigger run, or " + names.EnvArena

func (a *arena) free() (bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.spare {
		bytes += s.size
	}
	return bytes
}

// tryAlloc is alloc for callers that can do without the memory: it fails at once for a while
// after the sidecar had no memory.
func (a *arena) tryAlloc(n int) (off int, ok bool) {
	off, ok, _ = a.find(n, false)
	return off, ok
}

// find allocates n bytes. It returns false without an error if the arena has no room for them,
// and an error if it has room but the sidecar has no memory.
func (a *arena) find(n int, insist bool) (off int, ok bool, err error) {
	want := max((n+arenaAlign-1)&^(arenaAlign-1), arenaAlign)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range a.spare {
		if s.size < want {
			continue
		}
		if err := a.grow(s.off+want, insist); err != nil {
			return 0, false, err
		}
		if s.size == want {
			a.spare = append(a.spare[:i], a.spare[i+1:]...)
		} else {
			a.spare[i] = span{s.off + want, s.size - want}
		}
		a.used[s.off] = want
		return s.off, true, nil
	}
	return 0, false, nil
}

func (a *arena) release(off int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	size, ok := a.used[off]
	if !ok {
		for first, size := range a.used {
			if first < off && off < first+size {
				return fmt.Errorf("%w: the slice begins within an allocation; free the one that Alloc returned", ErrInvalid)
			}
		}
		return ErrNotAllocated
	}
	delete(a.used, off)
	i := sort.Search(len(a.spare), func(i int) bool { return a.spare[i].off > off })
	a.spare = append(a.spare, span{})
	copy(a.spare[i+1:], a.spare[i:])
	a.spare[i] = span{off, size}
	a.merge(i)
	if i > 0 {
		a.merge(i - 1)
	}
	return nil
}

// sizeOf returns the size of the allocation that begins at off, or 0.
func (a *arena) sizeOf(off int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used[off]
}

// freed reports whether any of n bytes from off on are free.
func (a *arena) freed(off, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.spare), func(i int) bool { return a.spare[i].off+a.spare[i].size > off })
	return i < len(a.spare) && a.spare[i].off < off+n
}

// merge joins the free span i with the next one if they touch.
func (a *arena) merge(i int) {
	if i+1 < len(a.spare) && a.spare[i].off+a.spare[i].size == a.spare[i+1].off {
		a.spare[i].size += a.spare[i+1].size
		a.spare = append(a.spare[:i+1], a.spare[i+2:]...)
	}
}

// borrow allocates a block for a short time for the library itself. Sizes are powers of two, and
// returnBlock keeps small blocks for the next borrow.
func (a *arena) borrow(n int) (off, size int, err error) {
	size = 4 << 10
	for size < n {
		size *= 2
	}
	a.mu.Lock()
	if list := a.cache[size]; len(list) > 0 {
		off = list[len(list)-1]
		a.cache[size] = list[:len(list)-1]
		a.mu.Unlock()
		return off, size, nil
	}
	a.mu.Unlock()
	if size > cacheMax {
		size = n
	}
	off, err = a.alloc(size)
	return off, size, err
}

// cacheMax is the size of the largest block that returnBlock keeps, and cacheDepth the most blocks of
// one size: together they bound the memory that is kept.
const (
	cacheMax   = 64 << 10
	cacheDepth = 8
)

func (a *arena) returnBlock(off, size int) {
	a.mu.Lock()
	size = max(size, a.used[off]) // borrow may have rounded it up
	if size <= cacheMax && len(a.cache[size]) < cacheDepth {
		a.cache[size] = append(a.cache[size], off)
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()
	_ = a.release(off) // cannot fail: alloc returned it
}
