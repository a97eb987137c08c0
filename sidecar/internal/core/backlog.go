package core

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Messages to a peer leave in the order in which they came, so that what one
// rank has said waits in front of what its neighbours say. A rank whose messages
// wait for links is therefore not heard until they have gone: a flood of small
// messages fills its own ring, and its neighbours wait for a bounded part of it.
// Large transfers and one-sided operations have turns instead (queue.Fair).

// Held reports that no more descriptors should be taken from a session for now: its
// messages wait for links, or a collective of it takes its vectors. Links and Advance
// end it.
func (c *Core) Held(id SessionID) bool {
	s := c.sessions[id]
	return s != nil && (s.endpoint.backlog >= c.cfg.limits.AheadFrames || c.collectives.Reading(id)) && c.fail == nil
}

// speaker is the rank of here whose message begins with f; nil: none does.
func (c *Core) speaker(f *link.Frame) *endpoint {
	if t := f.Head.Type; t != wire.Eager && t != wire.RTS {
		return nil
	}
	return c.endpoints[f.Head.Src]
}

// shift counts the messages among the frames after one, up to and including the
// other, as waiting, or as not waiting any more.
func (c *Core) shift(o *channel.Outbox, from, to uint64, by int) {
	for s := from + 1; s <= to; s++ {
		if e := c.speaker(o.At(s)); e != nil {
			e.backlog += by
		}
	}
}

// rewind has all frames to p posted again of which nobody has told that they have come.
func (c *Core) rewind(p *peer) {
	c.shift(&p.out, p.out.Kept(), p.out.Next(), 1)
	p.out.Rewind()
}
