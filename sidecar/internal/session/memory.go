package session

import (
	"fmt"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// reservations keeps attaches from taking more than there is, also those that
// run at the same time. fallocate alone would not: on the kernel's shared-memory
// mount it goes on until the out-of-memory killer ends somebody.
//
// A rank takes its arena in pieces while it runs. Beyond the first one, of which it is
// certain, it gets a piece only if those that have not attached yet, or have not asked for
// their first piece, find enough afterwards.
//
// In a control group the promises are counted against the limit, with what the
// sidecar needs for itself. api/memory says how much that is, here as in the
// operator that has set the limit, so that all ranks of a pod fit. Elsewhere
// only what is free counts.
type reservations struct {
	available func() ([]place, error)
	own       uint64 // bytes that the sidecar needs for itself

	mu      sync.Mutex // guards what follows
	settled sync.Cond
	held    uint64 // bytes promised, until they are released
	moving  uint64 // of these, what is being reserved: it may count as free still
	coming  uint64 // bytes that are kept for ranks
}

// place is somewhere memory is counted.
type place struct {
	limit, used uint64
	group       bool // a control group
	where       string
}

func newReservations(own, coming uint64, available func() ([]place, error)) *reservations {
	r := &reservations{available: available, own: own, coming: coming}
	r.settled.L = &r.mu
	return r
}

// promise is memory that one session may take.
type promise struct {
	r        *reservations
	bytes    uint64
	settled  bool
	released bool
}

// keep keeps bytes for ranks that come; arrive says that they have, or never will.
func (r *reservations) keep(bytes uint64) {
	r.mu.Lock()
	r.coming += bytes
	r.mu.Unlock()
}

func (r *reservations) arrive(bytes uint64) {
	r.mu.Lock()
	r.coming = less(r.coming, bytes)
	r.mu.Unlock()
}

// promise waits for its turn, and refuses what the machine or the container
// has not room for, or with leaves, what ranks that come need. The caller calls settle
// when the memory is reserved, and release when it is given back.
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
		r.settled.Wait() // then it is known what the others really left
	}
}

// tightest is the place with the least room.
func (r *reservations) tightest(all []place) place {
	least := all[0]
	for _, p := range all[1:] {
		if r.room(p) < r.room(least) {
			least = p
		}
	}
	return least
}

// room is what may be promised of a place.
func (r *reservations) room(p place) uint64 {
	room := less(p.limit, p.used+r.moving)
	if p.group {
		room = min(room, less(p.limit, r.own+r.held))
	}
	return room
}

func (r *reservations) shortage(want, kept uint64, p place) error {
	there := memory.Text(less(r.room(p), kept))
	if !p.group {
		return fmt.Errorf("%w: %s wanted, %s available %s: start fewer ranks, or take less memory in each", segment.ErrNoMemory, memory.Text(want), there, p.where)
	}
	return fmt.Errorf("%w: %s wanted, %s available %s of %s, of which ranks have %s and the sidecar keeps %s: raise the limit, or lower the arena or the number of ranks",
		segment.ErrNoMemory, memory.Text(want), there, p.where, memory.Text(p.limit), memory.Text(r.held), memory.Text(r.own+kept))
}

// settle says that the memory is reserved, or will not be: from now on whoever
// counts what is used counts it.
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

// release gives the promise back.
func (p *promise) release() {
	p.settle()
	p.r.mu.Lock()
	p.r.held -= p.bytes
	p.bytes, p.released = 0, true
	p.r.mu.Unlock()
}

// shrink gives back what of a settled promise was not reserved.
func (p *promise) shrink(bytes uint64) {
	p.r.mu.Lock()
	p.r.held -= less(p.bytes, bytes)
	p.bytes = min(p.bytes, bytes)
	p.r.mu.Unlock()
}

// join adds a settled promise to p, with which it is released from now on. If p has been
// released meanwhile, it is, too.
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

// less subtracts, down to 0.
func less(a, b uint64) uint64 { return a - min(a, b) }
