package sim

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// act is an operation that is not a plain message.
type act interface {
	// describe returns the descriptor. It is called when the operation is posted.
	describe(a *app) shm.Descriptor
	// ended checks the completion, in a job without a failure.
	ended(a *app, d *shm.Descriptor) error
}

// Tags of operations that nothing matches.
const (
	tagNeverSent     = 77
	tagNeverReceived = 78
)

// cancelled is a receive, or a synchronous send, that nothing matches. It is cancelled after
// some time.
type cancelled struct {
	send bool
	peer uint32
	n    int
}

func (c *cancelled) describe(a *app) shm.Descriptor {
	d := shm.Descriptor{Op: shm.OpRecv, Peer: c.peer, Tag: tagNeverSent, Class: shm.ClassArena}
	if c.send {
		d.Op, d.Flags, d.Tag = shm.OpSend, shm.FlagSync, tagNeverReceived
	}
	d.SetBody(uint64(a.alloc(c.n)), uint64(c.n), 0, 0)
	return d
}

func (c *cancelled) ended(_ *app, d *shm.Descriptor) error {
	if d.Status != shm.StatusCancelled {
		return fmt.Errorf("request %d, which nothing matches, ended with status %d", d.Req, d.Status)
	}
	return nil
}

// immediateProbe is a probe that does not wait.
type immediateProbe struct {
	peer uint32
	tag  uint64
}

func (g *immediateProbe) describe(*app) shm.Descriptor {
	return shm.Descriptor{Op: shm.OpProbe, Flags: shm.FlagNow, Peer: g.peer, Tag: g.tag}
}

func (g *immediateProbe) ended(_ *app, d *shm.Descriptor) error {
	switch {
	case d.Status == shm.StatusNoMessage:
		return nil
	case d.Status != shm.StatusOK || d.Peer != g.peer || d.Tag != g.tag:
		return fmt.Errorf("probe of %d tag %d found %d tag %d, status %d", g.peer, g.tag, d.Peer, d.Tag, d.Status)
	}
	return nil
}
