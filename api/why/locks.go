package why

import (
	"fmt"
	"slices"
	"strings"
)

// Lock is the lock of a window for which other ranks wait.
type Lock struct {
	Window  uint32   `json:"window"`
	Holders []Holder `json:"holders,omitempty"` // holders of the lock, that with the longest time first
	More    int      `json:"more,omitempty"`    // number of holders that are not listed
}

// Holder is a rank that has a lock.
type Holder struct {
	Rank    int     `json:"rank"`
	Seconds float64 `json:"seconds"` // time for which it has held the lock
}

// LockName is the Name of a wait for a window's lock.
const LockName = "lock"

// findLocks adds the holders of a lock to the ranks that wait for it, as the lock's target
// reports them.
func findLocks(ranks []Rank) {
	type windowKey struct {
		generation uint64 // windows have new numbers in each generation
		target     int
		window     uint32
	}
	locks := map[windowKey]*Lock{}
	for i := range ranks {
		for j := range ranks[i].Locks {
			l := &ranks[i].Locks[j]
			locks[windowKey{ranks[i].Generation, ranks[i].Rank, l.Window}] = l
		}
	}
	if len(locks) == 0 {
		return
	}
	for i := range ranks {
		r := &ranks[i]
		r.Waits = slices.Clone(r.Waits) // the caller's waits are not changed
		for j := range r.Waits {
			if w := &r.Waits[j]; w.Kind == OneSided && w.Name == LockName {
				w.lock = locks[windowKey{r.Generation, w.Peer, w.Context}]
			}
		}
	}
}

// needs returns the ranks that hold the lock.
func (l *Lock) needs() (ranks []int) {
	for _, h := range l.Holders {
		ranks = append(ranks, h.Rank)
	}
	return ranks
}

func (l *Lock) text() string {
	if l == nil || len(l.Holders) == 0 {
		return ""
	}
	var parts []string
	for i, h := range l.Holders {
		if i == 0 {
			parts = append(parts, fmt.Sprintf(", which rank %d has held for %s", h.Rank, Time(h.Seconds)))
			continue
		}
		parts = append(parts, fmt.Sprintf("rank %d for %s", h.Rank, Time(h.Seconds)))
	}
	if l.More > 0 {
		parts = append(parts, fmt.Sprintf("%d more ranks", l.More))
	}
	return strings.Join(parts, ", ")
}
