package core

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// keeper returns a sidecar of n ranks, all attached, with n connected peers of one rank each.
// Its ranks are the first of the job.
func keeper(t *testing.T, n int) *Core {
	t.Helper()
	pods := make([]int32, 2*n)
	for i := range n {
		pods[n+i] = int32(1 + i)
	}
	ports := &lone{regions: map[link.Region][]byte{}}
	c, err := New(Config{PodOf: pods, Pods: 1 + n}, ports)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		slab := link.Ref{Region: RegionFirst + link.Region(2*i), Len: 1 << 20}
		barrier := shm.CollBlock{Kind: shm.CollBarrier}
		barrier.Encode(ports.Bytes(slab.Slice(0, shm.CollBlockBytes)))
		if err := c.Attach(1, SessionID(i), uint32(i), shm.FeaturesAll, slab, link.Ref{Region: slab.Region + 1, Len: 8 << 20}); err != nil {
			t.Fatal(err)
		}
		c.LinkUp(1, link.Peer(1+i), link.Caps{Name: "test"})
		greeting := wire.Header{Type: wire.Ack, Credit: c.peers[1+i].Credit().Granted()}
		if err := c.Deliver(1, link.Peer(1+i), &greeting, nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestRanksKeepNoMoreThanIsCounted checks that the requests that all ranks of a pod have open,
// at once and one after the other, take no more memory than the formula has for them. The
// first rank may use all of its request numbers, and each other rank has its share when the
// common part is used up.
func TestRanksKeepNoMoreThanIsCounted(t *testing.T) {
	const ranks = 3
	request := func(op shm.Op, class shm.Class, req, bytes int) *shm.Descriptor {
		d := &shm.Descriptor{Op: op, Class: class, Req: uint32(req), Peer: ranks, Tag: uint64(req)}
		d.SetBody(0, uint64(bytes), 0, 0)
		return d
	}
	for what, next := range map[string]func(i int) *shm.Descriptor{
		"receives":              func(i int) *shm.Descriptor { return request(shm.OpRecv, shm.ClassArena, i, 64) },
		"large sends":           func(i int) *shm.Descriptor { return request(shm.OpSend, shm.ClassArena, i, 1<<20) },
		"sends of staged bytes": func(i int) *shm.Descriptor { return request(shm.OpSend, shm.ClassStaged, i, 1<<30) },
		"probes":                func(i int) *shm.Descriptor { return request(shm.OpProbe, shm.ClassNone, i, 0) },
		"puts": func(i int) *shm.Descriptor {
			d := request(shm.OpPut, shm.ClassArena, i, 8)
			d.Context = 9
			return d
		},
		"collectives": func(i int) *shm.Descriptor {
			d := &shm.Descriptor{Op: shm.OpColl, Req: uint32(i), Class: shm.ClassSlab}
			d.SetBody(0, shm.CollBlockBytes, 0, 0)
			return d
		},
		"silent sends": func(int) *shm.Descriptor {
			d := &shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: ranks}
			d.SetInline([]byte("12345678"))
			return d
		},
		"the highest number first": func(i int) *shm.Descriptor {
			return request(shm.OpRecv, shm.ClassArena, shm.MaxRequests-1-i, 64)
		},
		"chunks": func(i int) *shm.Descriptor {
			if i%(p2p.ChunkLimit+1) == 0 {
				return request(shm.OpSend, shm.ClassStaged, i/(p2p.ChunkLimit+1), 1<<30)
			}
			return request(shm.OpStage, shm.ClassSlab, i/(p2p.ChunkLimit+1), 8)
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := keeper(t, ranks)
			before := inUse()
			for rank := range ranks {
				var err error
				n := 0
				for ; err == nil && n < shm.MaxRequests; n++ {
					err = c.Submit(2, SessionID(rank), next(n))
				}
				if err != nil && !strings.Contains(err.Error(), "operations that are open take") {
					t.Fatalf("rank %d, operation %d: %v", rank, n, err)
				}
				if rank == 0 && err != nil && what == "receives" {
					t.Errorf("operation %d of the only rank that has any: %v", n, err)
				}
				if share := int(memory.RankShare(2*ranks) / (memory.RequestCost + memory.NumberCost + memory.CollCost)); n < share && what != "the highest number first" {
					t.Errorf("rank %d has %d operations, its share is %d", rank, n, share)
				}
			}
			if kept, most := inUse()-before, memory.RanksKept+ranks*memory.RankShare(2*ranks); kept > most {
				t.Errorf("%d bytes are kept, %d are counted", kept, most)
			}
			for rank := range ranks {
				c.Detach(3, SessionID(rank), errors.New("over"))
			}
			for c.Advance(4) > 0 {
			}
			if c.ofRanks.Used() < 0 || c.ofRanks.Used() > 0 && what != "puts" { // which the peers still hold
				t.Errorf("%d bytes are accounted when all have gone", c.ofRanks.Used())
			}
		})
	}
}

// TestEachRankHasTheRequestsOfTheContract: a rank has the requests that LAYOUT §4.1 promises, with
// the lowest numbers, when another rank has opened all that it may.
func TestEachRankHasTheRequestsOfTheContract(t *testing.T) {
	const n = 3
	c := keeper(t, n)
	post := func(rank SessionID, req int64) error {
		d := shm.Descriptor{Op: shm.OpRecv, Class: shm.ClassArena, Req: uint32(req), Peer: n, Tag: uint64(req)}
		d.SetBody(0, 64, 0, 0)
		return c.Submit(2, rank, &d)
	}
	for req := range int64(shm.MaxRequests) {
		if err := post(0, req); err != nil {
			t.Fatal(err)
		}
	}
	sure := memory.RequestsSure(2 * n)
	if sure != 2048 {
		t.Errorf("%d requests of each rank, want 2048", sure)
	}
	for rank := SessionID(1); rank < n; rank++ {
		for req := range sure {
			if err := post(rank, req); err != nil {
				t.Fatalf("rank %d: request %d of %d: %v", rank, req+1, sure, err)
			}
		}
		if err := post(rank, sure); err == nil {
			t.Errorf("rank %d has more than its %d requests", rank, sure)
		}
	}
}

// TestLeavesWhileTheJobEnds: a rank leaves while its requests end because the job has failed.
// Each request ends once.
func TestLeavesWhileTheJobEnds(t *testing.T) {
	for op, class := range map[shm.Op]shm.Class{shm.OpProbe: shm.ClassNone, shm.OpRecv: shm.ClassArena, shm.OpSend: shm.ClassArena} {
		c := keeper(t, 2)
		for req := range uint32(2*advanceItems + 1) {
			d := &shm.Descriptor{Op: op, Class: class, Req: req, Peer: 2, Tag: uint64(req)}
			if op != shm.OpProbe {
				d.SetBody(0, 1<<20, 0, 0)
			}
			if err := c.Submit(2, 1, d); err != nil {
				t.Fatal(err)
			}
		}
		c.Detach(3, 0, errors.New("over"))
		c.Advance(4)
		c.Detach(5, 1, errors.New("over, too"))
		for c.Advance(6) > 0 {
		}
		if s := c.sessions[1]; s != nil && s.Open() > 0 && op == shm.OpProbe {
			t.Errorf("op %d: %d requests are open when their rank has left", op, s.Open())
		}
	}
}

// TestPeersKeepNoMoreThanIsCounted checks that the messages that all peers announce and
// request take no more memory than the formula has for them, that a peer that has sent little
// is not disconnected when the memory is used up, and that the bytes are given back.
func TestPeersKeepNoMoreThanIsCounted(t *testing.T) {
	const peers = 3
	for what, x := range map[string]struct {
		frame   wire.Header
		payload []byte
		cost    int64
	}{
		"announcements": {wire.Header{Type: wire.RTS, Context: 5, A: 1 << 30, Length: wire.RTSBytes}, make([]byte, wire.RTSBytes), memory.AnnounceCost},
		"flushes":       {wire.Header{Type: wire.Flush, Context: 9, A: 1}, nil, memory.AnswerCost},
		"locks":         {wire.Header{Type: wire.Lock, Context: 9, A: 1, B: 1}, nil, memory.LockCost},
	} {
		t.Run(what, func(t *testing.T) {
			c := keeper(t, peers)
			win := shm.Descriptor{Op: shm.OpWin, Class: shm.ClassArena, Context: 9}
			win.SetBody(0, 4096, 0, 0)
			if err := c.Submit(1, 0, &win); err != nil {
				t.Fatal(err)
			}
			before := inUse()
			for i := range peers {
				var err error
				n := 0
				for err == nil && n < 1<<19 {
					n++
					h := x.frame
					h.Seq, h.Src, h.B, h.Tag = uint64(n), uint32(peers+i), h.B|uint64(n)<<1, uint64(n)
					if x.frame.Type == wire.Flush {
						h.Tag = 0
					}
					if x.frame.Type == wire.Lock {
						h.B = 1
					}
					err = c.Deliver(2, link.Peer(1+i), &h, x.payload)
				}
				if !errors.Is(err, link.ErrProtocol) {
					t.Fatalf("peer %d, after %d frames: %v", 1+i, n, err)
				}
				if share := int(memory.PeerShare / x.cost); n < share {
					t.Errorf("peer %d is cut off after %d frames, its share is %d", 1+i, n, share)
				}
			}
			if kept, most := inUse()-before, memory.PeersKept(peers, 2*peers, peers+1)+peers*memory.PeerShare; kept > most {
				t.Errorf("%d bytes are kept, %d are counted", kept, most)
			}
			runtime.KeepAlive(c)
		})
	}
}
