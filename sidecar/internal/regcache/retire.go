package regcache

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A rank that leaves may leave a hundred thousand registrations, each of which the kernel
// takes microseconds to end, while the other ranks of the sidecar wait. So they end a few
// at a time. Until then they count as pinned, and can be evicted like all idle
// registrations.

// RetireRegion forgets a region: lookups find none of its registrations any more. Its idle
// registrations end with Settle, and those in use with their last use. Its pages stay
// pinned until then, even if they are unmapped.
func (c *Cache) RetireRegion(region link.Region) {
	if !c.Knows(region) {
		return
	}
	c.spaces[region].retired = true
	c.retired = append(c.retired, region)
}

// emptyAStep is the number of pages without a registration that Settle visits at the cost
// of one ended registration.
const emptyAStep = 512

// Settle ends about n registrations of retired regions, and reports whether there was
// anything to do.
func (c *Cache) Settle(n int) bool {
	if len(c.retired) == 0 {
		return false
	}
	region := c.retired[0]
	s := c.spaces[region]
	for n > 0 && s.walked < s.pages {
		from := s.walked
		s.walked = s.next(from, min(from+emptyAStep, s.pages))
		if id := s.at(s.walked); id != 0 {
			c.retire(s, id)
		}
		n--
	}
	c.flush()
	if s.walked >= s.pages {
		c.retired = c.retired[1:]
		c.abandon(region)
	}
	return true
}

// settleNow ends all registrations of a retired region, because its number is given to
// another one.
func (c *Cache) settleNow(region link.Region) {
	i := slices.Index(c.retired, region)
	if i < 0 {
		return
	}
	c.retired = slices.Delete(c.retired, i, i+1)
	s := c.spaces[region]
	c.covering(s, s.rest(s.walked, c.shift), func(id uint32) bool { c.retire(s, id); return true })
	c.flush()
	c.abandon(region)
}

// abandon forgets a region of which only registrations in use are left.
func (c *Cache) abandon(region link.Region) {
	for id := c.spaces[region].dying; id != 0; id = c.entries[id].next {
		c.entries[id].state = stateOrphan // another region may soon have its number
	}
	c.spaces[region] = nil
}
