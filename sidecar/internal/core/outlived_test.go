package core

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// announced is a link that keeps the requests of announced messages.
type announced []uint64

func (x *announced) Post(_ link.Peer, frames []*link.Frame) int {
	for _, f := range frames {
		if f.Head.Type == wire.RTS {
			*x = append(*x, f.Head.B)
		}
	}
	return len(frames)
}

// settle does all work that waits, and acknowledges what was sent to a peer.
func (x *announced) settle(t *testing.T, c *Core, p link.Peer) {
	t.Helper()
	for again := true; again; {
		again = c.Advance(2) > 0
		for c.Flush(2, x) {
			again = true
		}
	}
	h := wire.Header{Type: wire.Ack, Ack: c.peers[p].Out().Next(), Credit: c.peers[p].Credit().Granted()}
	if err := c.Deliver(2, p, &h, nil); err != nil {
		t.Fatal(err)
	}
}

// TestSendsThatOutliveTheirRanksAreCounted: ranks send as many small messages as they may, silent
// ones or with a request, and leave in good order one after the other. The sends that wait for
// their receivers count against the bound of all ranks until they end: a later rank has its share.
func TestSendsThatOutliveTheirRanksAreCounted(t *testing.T) {
	const n = 4
	for name, flags := range map[string]uint8{"requests": 0, "silent": shm.FlagSilent} {
		t.Run(name, func(t *testing.T) {
			c := keeper(t, n)
			share := int(memory.RankShare(2*n) / (memory.RequestCost + memory.NumberCost))
			before := inUse()
			var waiting [n]announced
			for rank := range n {
				peer, sent := link.Peer(1+rank), 0
				var err error
				for ; sent < shm.MaxRequests; sent++ {
					d := shm.Descriptor{Op: shm.OpSend, Flags: flags, Class: shm.ClassInline, Req: uint32(sent), Peer: uint32(n + rank)}
					d.SetInline([]byte("12345678"))
					if err = c.Submit(2, SessionID(rank), &d); err != nil {
						break
					}
					if sent%512 == 511 {
						waiting[rank].settle(t, c, peer)
					}
				}
				if err != nil && !strings.Contains(err.Error(), "operations that are open take") {
					t.Fatal(err)
				}
				if (err == nil) != (rank == 0) || sent < share {
					t.Errorf("rank %d: %d sends, then %v; its share is %d", rank, sent, err, share)
				}
				waiting[rank].settle(t, c, peer)
				if err := c.Submit(2, SessionID(rank), &shm.Descriptor{Op: shm.OpDetach}); err != nil {
					t.Fatal(err)
				}
				waiting[rank].settle(t, c, peer)
				if left := int64(c.Leftover().Sends); c.ofRanks.Used() != left*memory.RequestCost {
					t.Errorf("%d sends have outlived their ranks, %d bytes are accounted", left, c.ofRanks.Used())
				}
			}
			if kept, most := inUse()-before, memory.RanksKept+n*memory.RankShare(2*n); kept > most || c.ofRanks.Used() > most {
				t.Errorf("%d bytes are kept and %d accounted, %d are counted", kept, c.ofRanks.Used(), most)
			}
			for rank, requests := range waiting {
				for _, id := range requests {
					h := wire.Header{Type: wire.Fin, A: id, B: uint64(shm.StatusPeerLeft), Seq: c.peers[1+rank].Arrived() + 1}
					if err := c.Deliver(3, link.Peer(1+rank), &h, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			if left := c.Leftover().Sends; left != 0 || c.ofRanks.Used() != 0 {
				t.Errorf("%d bytes are accounted for %d sends when all have ended", c.ofRanks.Used(), left)
			}
		})
	}
}

// TestGetsThatOutliveTheirRankAreCounted: the records of gets that a peer has not answered stay when
// their rank has gone, and count until the answers have come.
func TestGetsThatOutliveTheirRankAreCounted(t *testing.T) {
	const n = 5
	x := newCrowd(t)
	for req := range uint32(n) {
		x.submit(0, arena(shm.OpGet, 2, req, 8))
	}
	for x.core.Flush(2, x) {
	}
	x.core.Detach(3, 0, errGone)
	for x.core.Advance(3) > 0 {
	}
	if x.core.sessions[0] != nil || x.core.ofRanks.Used() != n*memory.RequestCost {
		t.Errorf("%d bytes are accounted for %d gets", x.core.ofRanks.Used(), n)
	}
	for _, f := range x.frames {
		if f.Head.Type == wire.Get {
			x.deliver(wire.Header{Type: wire.Got, A: f.Head.A, Length: 8}, make([]byte, 8))
		}
	}
	if x.core.Stats().Accesses != 0 || x.core.ofRanks.Used() != 0 {
		t.Errorf("%d bytes are accounted for %d gets when all are answered", x.core.ofRanks.Used(), x.core.Stats().Accesses)
	}
}
