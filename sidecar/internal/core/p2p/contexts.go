package p2p

import (
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/wire"
)

// ShutLimit bounds the contexts that a rank has shut (L§5). Each is charged to its application.
const ShutLimit = 1 << 16

// shut notes that a rank will receive no message of a context any more. Otherwise messages of senders
// that do not know it would be kept for as long as the rank is attached.
func (e *endpoint) shut(context uint32) {
	if len(e.closed) >= ShutLimit || e.closed[context] || e.session.Charge(memory.ShutCost) != nil {
		return
	}
	if e.closed == nil {
		e.closed = map[uint32]bool{}
	}
	e.closed[context] = true
}

// rejects reports whether the message of h will not be received: its rank has left, or has shut its
// context, or the job has failed.
func (rx *receiver) rejects(e *endpoint, h *wire.Header) bool {
	return e.gone || rx.job.Failed() || e.closed != nil && h.Flags&wire.FlagColl == 0 && e.closed[h.Context]
}
