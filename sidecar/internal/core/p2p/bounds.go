package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Bounds of the state that this sidecar keeps for a peer. A correct peer stays far below them:
// credit bounds its messages, the requests that its ranks may have open bound its
// announcements, and it acknowledges the answers that it asks for (P§6). Other bounds are
// onesided.GetWindow, onesided.LockLimit, channel.AnswerLimit, ChunkLimit, and
// memory.PeersKept for the bytes of all peers together.
const (
	announceLimit = 2 * shm.MaxRequests // messages that are announced and not matched, for each rank of the peer
	RetractWindow = 1 << 16             // unanswered requests to a peer to give a message back; further ones wait
)

// charged uses the credit of an eager message.
func (p *peer) charged(h *wire.Header) error {
	if !p.Credit().Charge(channel.Units(charge(h.A))) {
		return errCredit
	}
	return nil
}

// consumed gives the credit of an eager message of n bytes back to its sender.
func (x *common) consumed(p *peer, n uint64) { x.channel.Consumed(p.Peer, charge(n)) }

// Errors that each frame is checked for. They are made once, so that the checking functions are
// small enough to be inlined.
var (
	errCredit  = fmt.Errorf("%w: eager messages beyond the granted credit", link.ErrProtocol)
	ErrGranted = fmt.Errorf("%w: more unexpected data than granted", link.ErrProtocol)
)

// announces counts a message whose payload is still with its sender.
func (p *peer) announces() error {
	if p.announced >= announceLimit*p.ranks {
		return fmt.Errorf("%w: more than %d messages of its %d ranks wait to be matched", link.ErrProtocol, announceLimit*p.ranks, p.ranks)
	}
	if err := p.Account().Charge(memory.AnnounceCost); err != nil {
		return err
	}
	p.announced++
	return nil
}
