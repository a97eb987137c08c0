package core

import (
	"cmp"
	"time"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// Limits are bounds within the core that no setting of a job changes. Their defaults were measured.
// The simulator and the figures vary them (Config.Within), so that a few small messages reach the
// states of a large job. Zero fields take the defaults named.
type Limits struct {
	CopyBytes   uint64        // an eager arena message up to this size is copied so that its send completes at once; default 8 KiB
	AheadBytes  uint64        // payload of large transfers that waits for a link: a small message to the same peer waits behind it; default 128 KiB
	AheadFrames int           // messages of a rank that may wait for links before no more descriptors are taken from it; default 256
	WarmBytes   uint64        // free memory of unexpected messages that is not given back to the kernel; default memory.PoolWarm
	VectorPiece int           // numbers of a collective's vectors that are taken at once; default 4096
	AckDelay    time.Duration // how long an acknowledgement may wait for a frame that carries it; default 200 us
	LookAfter   uint64        // frames of a ring that are taken without a sleep before their sender leaves out the notifications (channel/look.go); default 64
}

// Within returns the configuration with other limits.
func (c Config) Within(l Limits) Config {
	c.limits = l
	return c
}

func (l *Limits) setDefaults(eagerBytes uint64) {
	l.CopyBytes = min(cmp.Or(l.CopyBytes, 8<<10), eagerBytes)
	l.AheadBytes = cmp.Or(l.AheadBytes, 128<<10)
	l.AheadFrames = cmp.Or(l.AheadFrames, 256)
	l.WarmBytes = cmp.Or(l.WarmBytes, memory.PoolWarm)
	l.VectorPiece = cmp.Or(l.VectorPiece, 4096)
	l.AckDelay = cmp.Or(l.AckDelay, 200*time.Microsecond)
	l.LookAfter = cmp.Or(l.LookAfter, 64)
}
