package channel

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// gate is a link that takes open frames in all, and counts the frames that it is offered.
type gate struct{ open, offered int }

func (g *gate) Post(_ link.Peer, frames []*link.Frame) int {
	g.offered += len(frames)
	n := min(len(frames), g.open)
	g.open -= n
	return n
}

// idle is ports that do nothing, and a Handler that records which peers are lost.
type idle struct {
	Handler
	room *Room
	lost []link.Peer
}

func (*idle) Bytes(link.Ref) []byte                                          { return nil }
func (*idle) Register(link.Peer, link.Ref) (link.Key, error)                 { return link.Key{}, errors.New("none") }
func (*idle) Deregister(link.Peer, link.Key)                                 {}
func (*idle) Connect(link.Peer)                                              {}
func (*idle) Disconnect(link.Peer)                                           {}
func (*idle) Note(ranks.NoteKind, link.Peer, uint32, uint64, uint64, uint64) {}

func (*idle) Released(link.Peer, Release, *link.Frame) {}
func (*idle) Dropped(link.Peer, Release, *link.Frame)  {}
func (*idle) Ended(link.Peer)                          {}
func (*idle) Feed(link.Peer, Transfer) bool            { return false }
func (*idle) Up(link.Peer)                             {}
func (*idle) Greeted(link.Peer, *wire.Header)          {}
func (*idle) Down(link.Peer, error) bool               { return true }

func (u *idle) Lost(p link.Peer, _ error) {
	u.lost = append(u.lost, p)
	u.room.Bury(u.room.Peer(p))
}

// connected returns the room of pod 0, connected to all other pods, whose greetings have
// arrived.
func connected(t *testing.T, pods int) (*Room, *idle) {
	t.Helper()
	allowed := ranks.NewAllowance(1<<20, 1<<20)
	u := &idle{}
	u.room = New(Config{Peers: pods, CreditBytes: 1 << 20, CreditFirst: 1 << 20, Heartbeat: 500e6, DeadAfter: 4500e6, StartWithin: 60e9, AckDelay: 200e3}, u, u, &allowed)
	for i := 1; i < pods; i++ {
		p := u.room.Peer(link.Peer(i))
		u.room.Reach(p)
		u.room.LinkUp(1, p.ID(), link.Caps{})
		p.state, p.greet, p.knowsElem = Ready, false, true
	}
	return u.room, u
}
