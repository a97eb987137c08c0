package sim

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// crowd is the link of one sidecar to peers that are not there: each takes every
// frame and acknowledges it, and says nothing else but that it lives.
type crowd struct {
	engine *engine.Engine
	seq    []uint64 // by peer: last frame taken
	told   []uint64 // and acknowledged
	greets []link.Peer
	owes   []link.Peer
	frames int
}

func newCrowd(pods int) *crowd {
	return &crowd{seq: make([]uint64, pods), told: make([]uint64, pods)}
}

func (c *crowd) Caps() link.Caps             { return link.Caps{Name: "crowd", EagerMax: 64 << 10} }
func (c *crowd) Abilities() link.Abilities   { return link.Abilities{Attach: c.Attach} }
func (c *crowd) Attach(link.Peer, int) error { return nil }
func (c *crowd) Forget(link.Peer)            {}
func (c *crowd) Close() error                { return nil }
func (c *crowd) Cancel(link.Peer)            {}
func (c *crowd) Connect(p link.Peer)         { c.engine.Connected(p, -1); c.greets = append(c.greets, p) }
func (c *crowd) credit() uint32              { return (1 << 20) / wire.CreditUnit }

func (c *crowd) Post(p link.Peer, frames []*link.Frame) int {
	c.frames += len(frames)
	for _, f := range frames {
		if f.Head.Seq > c.seq[p] {
			if c.seq[p] == c.told[p] {
				c.owes = append(c.owes, p)
			}
			c.seq[p] = f.Head.Seq
		}
	}
	return len(frames)
}

func (c *crowd) Poll(sink link.Sink) int {
	greets, owes := c.greets, c.owes
	c.greets, c.owes = nil, nil
	for _, list := range [][]link.Peer{greets, owes} {
		for _, p := range list {
			c.told[p] = c.seq[p]
			_ = sink.Deliver(p, &wire.Header{Type: wire.Ack, Ack: c.seq[p], Credit: c.credit()}, nil) // it is right
		}
	}
	return len(greets) + len(owes)
}

// live makes every peer say that it lives.
func (c *crowd) live() {
	for p, n := range c.seq {
		if n > 0 {
			c.owes = append(c.owes, link.Peer(p))
		}
	}
}

// crowded are the pods of a job of so many, and the sidecar in the middle.
func crowded(pods, ranks int) core.Config {
	podOf := make([]int32, pods*ranks)
	for i := range podOf {
		podOf[i] = int32(i / ranks)
	}
	return core.Config{Self: link.Peer(pods / 2), PodOf: podOf, Pods: pods}
}
