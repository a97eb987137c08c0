package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Submit handles one descriptor of an application (L§5). d is a private copy. An error means that no
// correct client sends the descriptor: the engine ends the session with it.
func (c *Core) Submit(now int64, id SessionID, d *shm.Descriptor) error {
	c.at(now)
	s := c.sessions[id]
	if s == nil || s.Left() {
		return fmt.Errorf("core: session %d is not attached", id)
	}
	s.Taking(now)
	err := c.submit(s, d)
	if err != nil {
		return fmt.Errorf("rank %d: descriptor op %d request %d: %w", s.endpoint.rank, d.Op, d.Req, err)
	}
	return nil
}

// flagsOf returns the flags that an operation may have (L§4.3).
func flagsOf(op shm.Op) uint8 {
	switch op {
	case shm.OpSend:
		return shm.FlagSync | shm.FlagSilent | shm.FlagData | shm.FlagReply | shm.FlagTyped
	case shm.OpProbe, shm.OpMprobe:
		return shm.FlagNow
	case shm.OpLock:
		return shm.FlagExclusive
	}
	return 0
}

// contextLimit bounds communicator and window numbers (L§4.1).
const contextLimit = 1 << 31

func (c *Core) submit(s *session, d *shm.Descriptor) error {
	if d.Op == shm.OpNone || d.Op > shm.OpSubmitMax {
		return fmt.Errorf("unknown operation")
	}
	if d.Flags&^flagsOf(d.Op) != 0 {
		return fmt.Errorf("flags %#x", d.Flags)
	}
	if d.Context >= contextLimit {
		return fmt.Errorf("context %d, want below %d", d.Context, uint32(contextLimit))
	}
	if c.fail != nil && d.Op != shm.OpDetach {
		return c.submitFailed(s, d)
	}
	switch d.Op {
	case shm.OpComm:
		return c.collectives.SubmitComm(s.ID(), d)
	case shm.OpCommFree:
		c.collectives.FreeComm(s.ID(), d.Context)
		return nil
	case shm.OpColl:
		return c.collectives.Submit(s.ID(), d)
	case shm.OpReduced:
		return c.submitReduced(s, d)
	case shm.OpWin:
		return c.onesided.SubmitWindow(s.ID(), d)
	case shm.OpWinFree:
		return c.onesided.FreeWindow(s.ID(), d)
	case shm.OpPut, shm.OpGet, shm.OpAcc, shm.OpFetch, shm.OpCas, shm.OpFlush, shm.OpLock, shm.OpUnlock,
		shm.OpPost, shm.OpStart, shm.OpComplete, shm.OpWait:
		return c.onesided.Submit(s.ID(), d)
	case shm.OpAbort:
		return c.submitAbort(s, d)
	case shm.OpDetach:
		c.Detach(c.now, s.ID(), nil)
		return nil
	}
	return c.p2p.Submit(s.ID(), d)
}

// submitFailed handles a descriptor in a failed job.
func (c *Core) submitFailed(s *session, d *shm.Descriptor) error {
	switch d.Op {
	case shm.OpSend:
		if d.Flags&shm.FlagSilent != 0 {
			c.ports.Retire(s.ID(), 1)
			return nil
		}
	case shm.OpDrop, shm.OpCancel, shm.OpCommFree, shm.OpShut, shm.OpReduced, shm.OpAbort:
		return nil
	case shm.OpStage: // the request has ended already; so does its chunk
		return nil
	}
	if d.Op == shm.OpNone || d.Op > shm.OpSubmitMax {
		return fmt.Errorf("unknown operation")
	}
	if err := s.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
		return err
	}
	c.ranks.Finish(s.ID(), d.Req, shm.StatusAborted)
	return nil
}

// Held reports whether no more descriptors should be taken from a session for now, because too
// many of its messages wait for links, or the vectors of one of its collectives are being
// read. Links and Advance end that.
func (c *Core) Held(id SessionID) bool {
	s := c.sessions[id]
	return s != nil && (c.channel.Waiting(s.endpoint.rank) >= c.cfg.limits.AheadFrames || c.collectives.Reading(id)) && c.fail == nil
}
