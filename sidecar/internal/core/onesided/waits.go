package onesided

import (
	"cmp"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Lock is that of a window which others wait for.
type Lock struct {
	Window  uint32
	Holders []Holder // the longest first
	More    int      // of them beside these
}

// Holder is a rank that has a lock.
type Holder struct {
	Rank  uint32
	Since int64
}

// Bounds of what is told of one rank.
const (
	locksTold = 8
	holdTold  = 4
)

// Locks are the locks of a rank's windows that somebody waits for, those that have
// been held for longest first.
func (r *Room) Locks(rank uint32) (locks []Lock) {
	for number, w := range r.hosts[rank].wins {
		if w.waiting.Len() == 0 || len(w.holders) == 0 {
			continue
		}
		l := Lock{Window: number}
		for rank, since := range w.since {
			l.Holders = append(l.Holders, Holder{rank, since})
		}
		slices.SortFunc(l.Holders, func(a, b Holder) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Rank, b.Rank)) })
		l.More = max(len(l.Holders)-holdTold, 0)
		l.Holders = l.Holders[:len(l.Holders)-l.More]
		locks = append(locks, l)
	}
	slices.SortFunc(locks, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(a.Holders[0].Since, b.Holders[0].Since), cmp.Compare(a.Window, b.Window))
	})
	return locks[:min(len(locks), locksTold)]
}

// WaitOf describes an operation that has not ended.
func (r *Room) WaitOf(id uint64) (w ranks.Wait, ok bool) {
	o := r.origins.Get(id)
	if o == nil {
		return w, false
	}
	return ranks.Wait{Kind: ranks.WaitOneSided, Op: uint8(o.op), Peer: o.target, Context: o.context, Bytes: o.total, Moving: o.moves()}, true
}

// Moving reports that what an operation waits for is under way.
func (r *Room) Moving(id uint64) bool {
	o := r.origins.Get(id)
	return o != nil && o.moves()
}

// moves reports that an operation ends by the answer of a sidecar, and not by what another
// rank does, and that it is asked for.
func (o *origin) moves() bool {
	return o.emitted && o.op != shm.OpLock && o.op != shm.OpStart && o.op != shm.OpWait
}

// Open is what has not ended, at both sides.
type Open struct {
	Accesses  int // operations of ranks of here
	Orphans   int // gets whose application is gone, and that are being answered
	Asked     int // of them, those that count among what a peer may be asked for
	Queued    int // ranks with operations that wait for their turn at a peer
	Remote    int // operations that links carry out
	Views     int // windows of peers that are known
	Windows   int
	Closing   int // windows that are gone, with waiters
	Exposures int // windows that peers have reached for or written to
	Holders   int // peers that reach for them
	Gets      int // of peers, whose answers are not wholly in frames
	Served    int // of peers, whose answers they have not acknowledged wholly
	Missed    int // accesses of peers to windows that are not there
}

// Open returns what is open now. It looks at everything.
func (r *Room) Open() Open {
	x := Open{Views: r.views.Len(), Windows: len(r.windows), Closing: len(r.closing), Exposures: r.exposures.Len(), Gets: r.gots.Len()}
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
			x.Asked += p.asks + p.waits
			x.Queued += len(p.accesses)
			x.Remote += p.views.under
			x.Served += p.served
			x.Missed += len(p.missed.list)
		}
	}
	return x
}
