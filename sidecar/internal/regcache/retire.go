package regcache

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A rank that leaves may leave a hundred thousand registrations, each of which the
// kernel takes microseconds to end, while the other ranks of its sidecar wait. So they
// end a few at a time. Until then they count as pinned, and give way to others like all
// that is idle.

// RetireRegion forgets a region: nothing of it is found any more. Its idle
// registrations end with Settle, and those in use with their last use. Its pages stay
// pinned until then, whoever unmaps them.
func (c *Cache) RetireRegion(region link.Region) {
	if !c.Knows(region) {
		return
	}
	c.spaces[region].retired = true
	c.retired = append(c.retired, region)
}

// emptyAStep is the pages without a registration that Settle looks at for the work of
// one that it ends.
const emptyAStep = 512

// Settle ends about n registrations of regions that were retired, and reports whether
// there was anything to do.
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

// settleNow ends all of a region that was retired: its number is given to another.
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

// abandon lets go of a region of which only what is in use is left.
func (c *Cache) abandon(region link.Region) {
	for id := c.spaces[region].dying; id != 0; id = c.entries[id].next {
		c.entries[id].state = stateOrphan // another region may have its number soon
	}
	c.spaces[region] = nil
}
