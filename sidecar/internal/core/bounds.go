package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// What a peer may make this sidecar keep. A correct one never comes near: its
// messages are bounded by credit, its announcements by the requests that its
// ranks may have open, and it takes the answers that it asks for (P§6). Beside
// these there are getWindow, lockLimit and chunkLimit.
const (
	announceLimit = 2 * shm.MaxRequests // messages announced and not matched, a rank of the peer
	answerLimit   = 1 << 18             // answers to the peer that it has not acknowledged
)

// charged takes the credit of an eager message into account.
func (p *peer) charged(h *wire.Header) error {
	p.taken += uint32(charge(h.A) / wire.CreditUnit)
	if int32(p.grant-p.taken) < 0 {
		return errCredit
	}
	return nil
}

// Errors of every frame's checks, made once: who checks stays small enough to be
// inlined.
var (
	errCredit   = fmt.Errorf("%w: eager messages beyond the granted credit", link.ErrProtocol)
	errAnswered = fmt.Errorf("%w: it asks on and on, and has not acknowledged %d answers", link.ErrProtocol, answerLimit)
)

// announces counts a message that only its sender has.
func (p *peer) announces() error {
	if p.announced >= announceLimit*p.ranks {
		return fmt.Errorf("%w: more than %d messages of its %d ranks wait to be matched", link.ErrProtocol, announceLimit*p.ranks, p.ranks)
	}
	p.announced++
	return nil
}

// answer emits a frame that p has asked for, by a request or a message.
func (c *Core) answer(p *peer, t wire.Type) *link.Frame {
	f, a := c.emit(p, t)
	a.kind = afterAnswer
	p.answers++
	return f
}

// answered reports whether p takes its answers.
func (p *peer) answered() error {
	if p.answers > answerLimit {
		return errAnswered
	}
	return nil
}
