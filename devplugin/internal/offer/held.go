package offer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

// holdTime is how long a unit counts as held after the kubelet's last report of it. A kubelet that
// starts reports no pods for some seconds.
const holdTime = 30 * time.Second

// unit is a unit that the kubelet has allocated to a container: also of a resource that this agent
// offered under an earlier configuration, or that another plugin offers.
type unit struct{ resource, id string }

// Hold sets the units that containers hold, by resource, as the kubelet reports them (pod-resources
// API), for the next Update. An agent that has started has no other knowledge of its predecessor's
// allocations.
func (l *Ledger) Hold(held map[string][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for u, since := range l.held {
		if now.Sub(since) >= holdTime {
			delete(l.held, u)
		}
	}
	for name, ids := range held {
		r := l.find(name)
		for _, id := range ids {
			l.held[unit{name, id}] = now
			if r != nil && !l.known {
				r.used[id] = true
			}
		}
	}
	l.known = true
}

// Known reports whether Hold was called.
func (l *Ledger) Known() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// holds returns the devices of which containers hold units of this very resource.
func (r *resource) holds(held map[unit]time.Time) (ids []string) {
	for u := range held {
		id, ok := r.split(u.id)
		if ok && u.resource == r.pool.Resource && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// withheld returns the devices with what is wrong with those that a container holds under
// another name, which the kubelet would give once more: of a resource that was renamed,
// or whole where shares are offered now, or the other way round.
func (r *resource) withheld(list []inventory.Device, held map[unit]time.Time) []inventory.Device {
	by := map[string]unit{}
	for u := range held {
		if _, own := r.split(u.id); own && u.resource == r.pool.Resource {
			continue
		}
		id, _, share := strings.Cut(u.id, shareMark)
		if share && r.pool.Sharing == pool.Shared {
			continue // a share of a device that many containers share
		}
		if o, two := by[id]; !two || u.resource+u.id < o.resource+o.id {
			by[id] = u
		}
	}
	if len(by) == 0 {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		if u, ok := by[list[i].ID]; ok {
			list[i].Problems = append(slices.Clip(list[i].Problems), fmt.Sprintf("a container holds it as %s of %s", u.id, u.resource))
		}
	}
	return list
}
