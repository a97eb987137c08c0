package channel

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// What Config.AheadBytes has to keep busy until the next turn is a connection.
// Within the sidecar there is nothing to keep busy, and fragments are shorter.
const (
	aheadOwn    = 64 << 10
	fragmentOwn = 64 << 10
)

// framesAhead bounds the frames of one-sided operations that wait for the link,
// in the same way: operations beyond it stay with their rank.
const framesAhead = 1024

// Transfer names something of the user's that takes many frames: a large message, or many
// accesses to a window. Transfers to a peer have turns, by the rank that they are of.
type Transfer struct {
	Kind TransferKind
	ID   uint64
}

// TransferKind is one of the user's.
type TransferKind uint8

// Add gives a transfer to p of a rank its turns (Handler.Feed).
func (r *Room) Add(p *Peer, rank uint32, t Transfer) {
	p.Add(rank, t)
	r.Touch(p)
}

// Add adds a transfer, which gets its turns from the next Flush on that visits p.
func (p *Peer) Add(rank uint32, t Transfer) { p.transfers.Add(rank, t) }

// Wake resumes transfers to p that had nothing to emit.
func (r *Room) Wake(p *Peer) {
	if !p.transfers.Empty() {
		r.Touch(p)
	}
}

// Transferring reports whether there are transfers to p.
func (p *Peer) Transferring() bool { return !p.transfers.Empty() }

// DropTransfers forgets the transfers to p.
func (p *Peer) DropTransfers() { p.transfers.Clear() }

// Fragment returns how many bytes of a transfer go in one frame.
func (p *Peer) Fragment() uint64 { return p.fragment }

// Full reports whether as much waits for the link to p as is useful.
func (p *Peer) Full() bool {
	return p.out.Queued() >= p.ahead || p.out.UnpostedFrames() >= framesAhead
}

// feed turns transfers to p into frames, a fragment for each rank in turn, a bounded number of
// bytes and frames ahead of the link.
func (r *Room) feed(p *Peer) {
	// Transfers that have nothing to emit now end their turn without a frame: one
	// round of those is enough.
	for idle := 0; !p.transfers.Empty() && idle <= p.transfers.Owners(); {
		if p.Full() {
			return
		}
		last := p.out.Last()
		again := r.user.Feed(p.id, *p.transfers.Turn())
		p.transfers.EndTurn(again)
		if p.out.Last() == last && again {
			idle++
		} else {
			idle = 0
		}
	}
}

// OwnFragment returns Fragment of the sidecar's own stream, where fragments for others have n
// bytes.
func OwnFragment(n uint64) uint64 { return min(n, fragmentOwn) }

func (p *Peer) setAhead(id link.Peer, cfg *Config) {
	p.fragment, p.ahead = cfg.FragmentBytes, cfg.AheadBytes
	if id == cfg.Self {
		p.fragment, p.ahead = OwnFragment(p.fragment), min(p.ahead, aheadOwn)
	}
}
