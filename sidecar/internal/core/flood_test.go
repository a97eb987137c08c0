package core

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// swallows is a link that accepts all frames.
type swallows struct{}

func (swallows) Post(_ link.Peer, f []*link.Frame) int { return len(f) }

// receiver returns a sidecar of one rank, which is attached, and whose pods-1 peers are connected.
func receiver(t *testing.T, cfg Config) *Core {
	t.Helper()
	for i := range cfg.Pods {
		cfg.PodOf = append(cfg.PodOf, int32(i))
	}
	ports := &lone{regions: map[link.Region][]byte{RegionPool: make([]byte, cfg.PoolBytes())}}
	c, err := New(cfg, ports)
	if err != nil {
		t.Fatal(err)
	}
	slab := link.Ref{Region: RegionFirst, Len: 1 << 20}
	barrier := shm.CollBlock{Kind: shm.CollBarrier}
	barrier.Encode(ports.Bytes(slab.Slice(0, shm.CollBlockBytes)))
	if err := c.Attach(1, SessionID(0), 0, shm.FeaturesAll, slab, link.Ref{Region: slab.Region + 1, Len: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < cfg.Pods; i++ {
		c.LinkUp(1, link.Peer(i), link.Caps{Name: "test"})
		g := wire.Header{Type: wire.Ack, Credit: c.peers[i].Credit().Granted(), A: wire.FeatureAgain | wire.FeatureElem | wire.FeatureYield}
		if err := c.Deliver(1, link.Peer(i), &g, nil); err != nil {
			t.Fatal(err)
		}
	}
	c.Flush(1, swallows{})
	return c
}

// TestFloodOfSmallMessages checks that all pods of a job may send thousands of small messages to one
// rank that has posted no receive, although most have no credit and are announced.
func TestFloodOfSmallMessages(t *testing.T) {
	for _, x := range []struct{ pods, each, size int }{{128, 2100, 256}, {256, 600, 1024}, {600, 512, 256}} {
		t.Run(fmt.Sprintf("%d pods", x.pods), func(t *testing.T) {
			widest := memory.CreditOf(x.pods)
			first := memory.CreditFirst(widest, x.pods)
			budget := memory.CreditBudget(widest) - int64(x.pods)*(first-memory.CreditLeast)
			c := receiver(t, Config{Pods: x.pods, CreditBytes: uint64(widest), CreditFirst: uint64(first), CreditBudget: uint64(budget)})
			payload := make([]byte, x.size)
			used := make([]uint32, x.pods)
			units, now, announced := uint32(x.size/wire.CreditUnit), int64(2), 0
			for n := range x.each {
				for i := 1; i < x.pods; i++ {
					now += 1000
					h := wire.Header{Seq: uint64(n + 1), Src: uint32(i), Context: 5, Tag: uint64(n), A: uint64(x.size)}
					bytes := payload
					if left := int32(c.peers[i].Credit().Grant() - used[i]); left >= int32(units) {
						used[i] += units
						h.Type, h.Length = wire.Eager, uint32(x.size)
					} else {
						h.Type, h.B, h.Length = wire.RTS, uint64(n+1)<<1, wire.RTSBytes
						bytes = make([]byte, wire.RTSBytes)
						announced++
					}
					if err := c.Deliver(now, link.Peer(i), &h, bytes); err != nil {
						t.Fatalf("message %d of pod %d, after %d announcements: %v", n, i, announced, err)
					}
					for c.Flush(now, swallows{}) {
					}
				}
			}
			if announced == 0 {
				t.Error("no message was announced")
			}
		})
	}
}

// TestRecordsOfMessages checks that messages that wait for their receive use no more of the heap
// than api/memory counts, however many they are.
func TestRecordsOfMessages(t *testing.T) {
	for _, n := range []int{30000, 65000, 200000} {
		c := receiver(t, Config{Pods: 2, CreditBytes: 256 << 20, CreditFirst: 256 << 20})
		before := inUse()
		for i := range n {
			h := wire.Header{Type: wire.Eager, Seq: uint64(i + 1), Src: 1, Context: 5, Tag: uint64(i % 64)}
			if err := c.Deliver(2, 1, &h, nil); err != nil {
				t.Fatal(i, err)
			}
		}
		if each := (inUse() - before) / int64(n); each > memory.EagerRecord {
			t.Errorf("%d messages use %d bytes of the heap each, want at most %d", n, each, memory.EagerRecord)
		}
		runtime.KeepAlive(c)
	}
}
