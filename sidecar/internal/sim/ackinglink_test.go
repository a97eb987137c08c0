package sim

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// ackingLink is the link of one sidecar to peers without engines: each accepts and
// acknowledges every frame, and sends heartbeats.
type ackingLink struct {
	engine    *engine.Engine
	seq       []uint64 // by peer: last accepted frame
	acked     []uint64 // by peer: last acknowledged frame
	connected []link.Peer
	unacked   []link.Peer
	frames    int
}

func newAckingLink(pods int) *ackingLink {
	return &ackingLink{seq: make([]uint64, pods), acked: make([]uint64, pods)}
}

func (c *ackingLink) Caps() link.Caps             { return link.Caps{Name: "acking", EagerMax: 64 << 10} }
func (c *ackingLink) Abilities() link.Abilities   { return link.Abilities{Attach: c.Attach} }
func (c *ackingLink) Attach(link.Peer, int) error { return nil }
func (c *ackingLink) Forget(link.Peer)            {}
func (c *ackingLink) Close() error                { return nil }
func (c *ackingLink) Cancel(link.Peer)            {}
func (c *ackingLink) Connect(p link.Peer) {
	c.engine.Connected(p, -1)
	c.connected = append(c.connected, p)
}
func (c *ackingLink) credit() uint32 { return (1 << 20) / wire.CreditUnit }

func (c *ackingLink) Post(p link.Peer, frames []*link.Frame) int {
	c.frames += len(frames)
	for _, f := range frames {
		if f.Head.Seq > c.seq[p] {
			if c.seq[p] == c.acked[p] {
				c.unacked = append(c.unacked, p)
			}
			c.seq[p] = f.Head.Seq
		}
	}
	return len(frames)
}

func (c *ackingLink) Poll(sink link.Sink) int {
	connected, unacked := c.connected, c.unacked
	c.connected, c.unacked = nil, nil
	for _, list := range [][]link.Peer{connected, unacked} {
		for _, p := range list {
			c.acked[p] = c.seq[p]
			_ = sink.Deliver(p, &wire.Header{Type: wire.Ack, Ack: c.seq[p], Credit: c.credit()}, nil) // a correct frame is not refused
		}
	}
	return len(connected) + len(unacked)
}

// heartbeat makes every connected peer send a heartbeat.
func (c *ackingLink) heartbeat() {
	for p, n := range c.seq {
		if n > 0 {
			c.unacked = append(c.unacked, link.Peer(p))
		}
	}
}

// largeJob returns the configuration of the sidecar of the pod in the middle of a job.
func largeJob(pods, ranks int) core.Config {
	podOf := make([]int32, pods*ranks)
	for i := range podOf {
		podOf[i] = int32(i / ranks)
	}
	return core.Config{Self: link.Peer(pods / 2), PodOf: podOf, Pods: pods}
}
