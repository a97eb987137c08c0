package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// What a peer may make this sidecar keep. A correct one never comes near: its
// messages are bounded by credit, its announcements by the requests that its
// ranks may have open, and it takes the answers that it asks for (P§6). Beside
// these there are onesided.GetWindow, onesided.LockLimit, channel.AnswerLimit and ChunkLimit, and the
// bytes of all peers together (memory.PeersKept).
const (
	announceLimit = 2 * shm.MaxRequests // messages announced and not matched, a rank of the peer
	RetractWindow = 1 << 16             // cancels that a peer is asked for at once: those beyond wait
)

// charged takes the credit of an eager message into account.
func (p *peer) charged(h *wire.Header) error {
	if !p.Credit().Charge(channel.Units(charge(h.A))) {
		return errCredit
	}
	return nil
}

// consumed gives the credit of an eager message of n bytes back to its sender.
func (x *common) consumed(p *peer, n uint64) { x.channel.Consumed(p.Peer, charge(n)) }

// Errors of every frame's checks, made once: who checks stays small enough to be
// inlined.
var (
	errCredit  = fmt.Errorf("%w: eager messages beyond the granted credit", link.ErrProtocol)
	ErrGranted = fmt.Errorf("%w: more unexpected data than granted", link.ErrProtocol)
)

// announces counts a message that only its sender has.
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
