package core

import "github.com/outrigger-hpc/outrigger/api/wire"

// acknowledge lets a peer acknowledge the frames up to a number.
func acknowledge(c *Core, p *peer, seq uint64) error {
	return c.Deliver(c.now, p.ID(), &wire.Header{Type: wire.Ack, Ack: seq, Credit: p.Credit().Granted()}, nil)
}
