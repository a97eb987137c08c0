package onesided

import (
	"cmp"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Lock is the lock of a window that ranks wait for.
type Lock struct {
	Window  uint32
	Holders []Holder // the earliest first
	More    int      // holders that are not listed
}

// Holder is a rank that has a lock.
type Holder struct {
	Rank  uint32
	Since int64
}

// Bounds of the lists that are reported for one rank.
const (
	locksReported   = 8
	holdersReported = 4
)

// Locks returns the locks of a rank's windows that other ranks wait for, those that have
// been held longest first.
func (r *Room) Locks(rank uint32) (locks []Lock) {
	for number, w := range r.hosts[rank].wins { // any order: sorted below
		if w.waiting.Len() == 0 || w.holders.Len() == 0 {
			continue
		}
		l := Lock{Window: number}
		for _, h := range w.holders.list {
			l.Holders = append(l.Holders, Holder{h.rank, h.since})
		}
		slices.SortFunc(l.Holders, func(a, b Holder) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Rank, b.Rank)) })
		l.More = max(len(l.Holders)-holdersReported, 0)
		l.Holders = l.Holders[:len(l.Holders)-l.More]
		locks = append(locks, l)
	}
	slices.SortFunc(locks, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(a.Holders[0].Since, b.Holders[0].Since), cmp.Compare(a.Window, b.Window))
	})
	return locks[:min(len(locks), locksReported)]
}

// WaitOf describes an operation that has not ended.
func (r *Room) WaitOf(id uint64) (w ranks.Wait, ok bool) {
	o := r.origins.Get(id)
	if o == nil {
		return w, false
	}
	return ranks.Wait{Kind: ranks.WaitOneSided, Op: uint8(o.op), Peer: o.target, Context: o.context, Bytes: o.total, Moving: o.moves()}, true
}

// Moving reports whether an operation ends without an action of another rank.
func (r *Room) Moving(id uint64) bool {
	o := r.origins.Get(id)
	return o != nil && o.moves()
}

// moves reports whether an operation is emitted and waits for the answer of a sidecar, and
// not for another rank.
func (o *origin) moves() bool {
	return o.emitted && o.op != shm.OpLock && o.op != shm.OpStart && o.op != shm.OpWait
}

// Open counts the state that has not ended on both sides.
type Open struct {
	Accesses  int // operations of hosted ranks
	Orphans   int // gets whose application has ended
	Asked     int // operations that count against the bounds of requests.go
	Queued    int // queues of operations
	Remote    int // remote operations
	Views     int // known windows of peers
	Windows   int
	Closing   int // closed windows with waiters
	Exposures int // windows that peers have accessed
	Holders   int // peers that may access them remotely
	Gets      int // gets of peers whose answers are not completely emitted
	Served    int // gets of peers whose answers are not acknowledged
	Missed    int // accesses of peers to windows that do not exist
}

// Open counts all open state; it visits all of it.
func (r *Room) Open() Open {
	x := Open{Views: r.views.Len(), Windows: len(r.windows), Closing: len(r.closing), Exposures: r.exposures.Len(), Gets: r.servedGets.Len()}
	r.origins.Each(func(_ uint64, o *origin) {
		if o.orphan {
			x.Orphans++
		} else {
			x.Accesses++
		}
	})
	r.exposures.Each(func(_ uint64, e *exposed) { x.Holders += e.Holders() })
	for _, b := range r.members {
		if b != nil {
			x.Asked += b.flushes
		}
	}
	for _, p := range r.peers {
		if p != nil {
			x.Asked += p.requests + int(p.lockBound.Used())
			x.Queued += len(p.accesses)
			x.Remote += p.views.under
			x.Served += p.served
			x.Missed += len(p.missed.list)
		}
	}
	return x
}
