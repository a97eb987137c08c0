package outrigger

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// arena allocates from the memory shared with the sidecar: first fit over free
// ranges in address order, which are merged when they meet.
type arena struct {
	everFreed atomic.Bool // the program has given something back: it may hold slices of it

	mu     sync.Mutex
	total  int
	ready  int           // bytes from the start on that are allocated: no other may be touched
	pieces *pieces       // that allocates more; nil: all are
	spare  []span        // free, by offset
	used   map[int]int   // offset -> bytes
	cache  map[int][]int // free blocks of the library's own, by size
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

// raiseArena is what to do where the arena is too small.
const raiseArena = "raise memory.arena of the MPIJob, --arena of outrigger run, or " + names.EnvArena

func (a *arena) free() (bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.spare {
		bytes += s.size
	}
	return bytes
}

// take is alloc for those that can do without.
func (a *arena) take(n int) (off int, ok bool) {
	off, ok, _ = a.find(n, false)
	return off, ok
}

// find takes n bytes; false without an error: there is no room for them. It fails where
// there is, and the sidecar has no memory for it.
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
				return fmt.Errorf("%w: the slice begins in the midst of an allocation; free the one that Alloc returned", ErrInvalid)
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

// sizeOf is the size of the allocation that begins at off; 0: none does.
func (a *arena) sizeOf(off int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used[off]
}

// freed reports whether any of n bytes from off on belong to nobody.
func (a *arena) freed(off, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.spare), func(i int) bool { return a.spare[i].off+a.spare[i].size > off })
	return i < len(a.spare) && a.spare[i].off < off+n
}

// merge joins the free range i with the next one if they touch.
func (a *arena) merge(i int) {
	if i+1 < len(a.spare) && a.spare[i].off+a.spare[i].size == a.spare[i+1].off {
		a.spare[i].size += a.spare[i+1].size
		a.spare = append(a.spare[:i+1], a.spare[i+2:]...)
	}
}

// borrow and giveBack are for the library's own short-lived blocks: sizes are
// powers of two, and small blocks are kept for the next time.
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

// cacheMax is the largest block, and cacheDepth the most of one size, that is
// kept.
const (
	cacheMax   = 64 << 10
	cacheDepth = 8
)

func (a *arena) giveBack(off, size int) {
	a.mu.Lock()
	size = max(size, a.used[off]) // as borrow has rounded it
	if size <= cacheMax && len(a.cache[size]) < cacheDepth {
		a.cache[size] = append(a.cache[size], off)
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()
	_ = a.release(off) // it came from alloc
}
