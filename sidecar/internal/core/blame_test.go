package core

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestPodWithTheMostIsNamed: pod 1 has announced as many messages as all pods may, and pod 2 then sends
// more than its share. The job fails because of pod 1, also if the connection to pod 2 has ended because
// it sent too much before the job did.
func TestPodWithTheMostIsNamed(t *testing.T) {
	for _, much := range []bool{false, true} {
		c := keeper(t, 2)
		n := uint64(0)
		announce := func(p int) error {
			n++
			h := wire.Header{Type: wire.RTS, Src: uint32(1 + p), Context: 5, A: 1 << 20, B: n, Length: wire.RTSBytes, Seq: c.peers[p].Arrived() + 1}
			return c.Deliver(2, link.Peer(p), &h, make([]byte, wire.RTSBytes))
		}
		for c.ofPeers.Used()+memory.AnnounceCost <= c.ofPeers.Most() {
			if err := announce(1); err != nil {
				t.Fatal(err)
			}
		}
		took := n * memory.AnnounceCost
		for range memory.PeerShare/memory.AnnounceCost + 1 {
			if err := announce(2); err != nil {
				t.Fatal(err)
			}
		}
		if !much {
			for c.Advance(2) > 0 {
			}
		} else {
			var err error
			for range memory.PeerShare / memory.AnnounceCost {
				if err == nil {
					err = announce(2)
				}
			}
			if !errors.Is(err, link.ErrProtocol) {
				t.Fatalf("pod 2 may send without end: %v", err)
			}
			c.LinkDown(2, 2, err)
		}
		f := c.Failed()
		if f == nil || f.Rank != 2 || !strings.Contains(f.Reason, fmt.Sprintf("take %d bytes for pod 1 and", took)) || !strings.Contains(f.Reason, "sidecar.resources") {
			t.Errorf("much=%t: the job fails by %v", much, f)
		}
	}
}
