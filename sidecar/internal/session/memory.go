package session

import (
	"fmt"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// reservations prevents attachments, also concurrent ones, from reserving more memory than
// there is. fallocate alone does not: on the kernel's shared-memory mount it goes on until
// the out-of-memory killer ends a process.
//
// A rank allocates its arena in pieces while it runs. The first piece is certain. A further
// one is granted only if enough memory remains for the ranks that have not attached yet, or
// have not allocated their first piece.
//
// In a control group the promises are counted against the limit, together with the memory
// that the sidecar needs for itself. api/memory computes that amount, here and in the
// operator that sets the limit, so that all ranks of a pod fit. Without a control group,
// only the free memory counts.
type reservations struct {
	available func() ([]pool, error)
	own       uint64 // bytes that the sidecar needs for itself

	mu      sync.Mutex // guards what follows
	settled sync.Cond
	held    uint64 // bytes promised and not released
	moving  uint64 // part of held that is being reserved now: it may still count as free
	coming  uint64 // bytes kept for ranks that have not attached
}

// pool is a limit on memory and the use of it.
type pool struct {
	limit, used uint64
	group       bool // a control group
	where       string
}

func newReservations(own, coming uint64, available func() ([]pool, error)) *reservations {
	r := &reservations{available: available, own: own, coming: coming}
	r.settled.L = &r.mu
	return r
}

// promise is memory that one session may allocate.
type promise struct {
	r        *reservations
	bytes    uint64
	settled  bool
	released bool
}

// reserve counts bytes for ranks that have not attached yet; arrive ends such a reservation.
func (r *reservations) reserve(bytes uint64) {
	r.mu.Lock()
	r.coming += bytes
	r.mu.Unlock()
}

func (r *reservations) arrive(bytes uint64) {
	r.mu.Lock()
	r.coming = less(r.coming, bytes)
	r.mu.Unlock()
}

// promise promises memory, or returns an error if the machine or the container has not
// enough: with leaves set, enough for the ranks that have not attached, too. While other
// promises are being settled it waits. The caller calls settle when the memory is
// allocated, and release when it is freed.
func (r *reservations) promise(want uint64, leaves bool) (*promise, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		all, err := r.available()
		if err != nil {
			return nil, err
		}
		tight := r.tightest(all)
		kept := uint64(0)
		if leaves {
			kept = r.coming
		}
		if want <= less(r.room(tight), kept) {
			r.held += want
			r.moving += want
			return &promise{r: r, bytes: want}, nil
		}
		if r.moving == 0 {
			return nil, r.shortage(want, kept, tight)
		}
		r.settled.Wait() // then the memory that the other promises left is known
	}
}

// tightest returns the pool with the least room.
func (r *reservations) tightest(all []pool) pool {
	least := all[0]
	for _, p := range all[1:] {
		if r.room(p) < r.room(least) {
			least = p
		}
	}
	return least
}

// room returns how much memory of a pool may be promised.
func (r *reservations) room(p pool) uint64 {
	room := less(p.limit, p.used+r.moving)
	if p.group {
		room = min(room, less(p.limit, r.own+r.held))
	}
	return room
}

func (r *reservations) shortage(want, kept uint64, p pool) error {
	there := memory.Text(less(r.room(p), kept))
	if !p.group {
		return fmt.Errorf("%w: %s wanted, %s available %s: start fewer ranks, or take less memory in each", segment.ErrNoMemory, memory.Text(want), there, p.where)
	}
	return fmt.Errorf("%w: %s wanted, %s available %s of %s, of which ranks have %s and the sidecar keeps %s: raise the limit, or lower the arena or the number of ranks",
		segment.ErrNoMemory, memory.Text(want), there, p.where, memory.Text(p.limit), memory.Text(r.held), memory.Text(r.own+kept))
}

// settle reports that the memory of a promise was allocated, or will not be: from now on it
// counts as used memory only.
func (p *promise) settle() {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	if p.settled {
		return
	}
	p.settled = true
	p.r.moving -= p.bytes
	p.r.settled.Broadcast()
}

// release returns the promised memory.
func (p *promise) release() {
	p.settle()
	p.r.mu.Lock()
	p.r.held -= p.bytes
	p.bytes, p.released = 0, true
	p.r.mu.Unlock()
}

// shrink returns the part of a settled promise that was not allocated.
func (p *promise) shrink(bytes uint64) {
	p.r.mu.Lock()
	p.r.held -= less(p.bytes, bytes)
	p.bytes = min(p.bytes, bytes)
	p.r.mu.Unlock()
}

// join adds a settled promise to p, with which it will be released. If p has been released
// meanwhile, join releases it.
func (p *promise) join(more *promise) {
	p.r.mu.Lock()
	if p.released {
		p.r.held -= more.bytes
	} else {
		p.bytes += more.bytes
	}
	more.bytes, more.released = 0, true
	p.r.mu.Unlock()
}

// less returns a-b, or 0 if b is larger.
func less(a, b uint64) uint64 { return a - min(a, b) }
