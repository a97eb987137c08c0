package offer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

// holdTime is how long a unit counts as held after the kubelet last reported it. A kubelet
// that has just started knows no pods for some seconds.
const holdTime = 30 * time.Second

// unit is a unit that the kubelet has allocated to a container. Its resource may also be one
// that this agent offered under an earlier configuration, or one of another plugin.
type unit struct{ resource, id string }

// Hold sets the units that containers hold, by resource, as the kubelet reports them
// (pod-resources API); the next Update uses them. An agent that has just started has no other
// information about the allocations of its predecessor.
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

// holds returns the devices of which containers hold units of this resource.
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

// withheld adds a problem to each device that a container holds under another name, because
// the kubelet would allocate it again: after the resource was renamed, if whole devices are
// held where shares are offered now, or the reverse.
func (r *resource) withheld(list []inventory.Device, held map[unit]time.Time) []inventory.Device {
	by := map[string]unit{}
	for u := range held {
		if _, own := r.split(u.id); own && u.resource == r.pool.Resource {
			continue
		}
		id, _, share := strings.Cut(u.id, shareMark)
		if share && r.pool.Sharing == pool.Shared {
			continue // the device is shared in any case
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
