package p2p

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// all is a link that takes all frames.
type all struct{}

func (all) Post(_ link.Peer, frames []*link.Frame) int { return len(frames) }

// nothing implements Ports and channel.Handler with methods that do nothing.
type nothing struct {
	Ports
	channel.Handler
}

func (nothing) Connect(link.Peer)                                              {}
func (nothing) Note(ranks.NoteKind, link.Peer, uint32, uint64, uint64, uint64) {}
func (nothing) Bytes(link.Ref) []byte                                          { return nil }
func (nothing) Register(link.Peer, link.Ref) (link.Key, error)                 { return link.Key{}, link.ErrBroken }
func (nothing) Deregister(link.Peer, link.Key)                                 {}
func (nothing) Disconnect(link.Peer)                                           {}
func (nothing) Up(link.Peer)                                                   {}
func (nothing) Greeted(link.Peer, *wire.Header)                                {}

// alone returns the room of pod 0 of 2, with one rank each. Its peer is connected, over a link
// that writes remotely.
func alone(t *testing.T) *Room {
	t.Helper()
	allowed := ranks.NewAllowance(1<<30, 1<<30)
	job := ranks.NewJob([]int32{0, 1}, 2)
	ch := channel.New(channel.Config{Peers: 2, CreditBytes: 1 << 20, CreditFirst: 1 << 20, Heartbeat: 500e6, DeadAfter: 4500e6, StartWithin: 60e9, FragmentBytes: 1 << 18, AheadBytes: 1 << 17}, nothing{}, nothing{}, &allowed)
	rm := New(Config{Hosted: []uint32{0}, Pods: 2, CreditBytes: 1 << 20, EagerBytes: EagerLimit}, nothing{}, ch, ranks.NewSessions(nil, &allowed, nil), job)
	ch.Reach(ch.Peer(1))
	ch.LinkUp(1, 1, link.Caps{Write: true})
	if err := ch.Deliver(1, 1, &wire.Header{Type: wire.Ack, Credit: ch.Peer(1).Credit().Granted()}, nil); err != nil {
		t.Fatal(err)
	}
	return rm
}
