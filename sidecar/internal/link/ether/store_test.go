package ether

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// TestStoreOfManyPeers checks that the packets of many peers which acknowledge nothing take no more
// memory than the store has, and a packet for each peer.
func TestStoreOfManyPeers(t *testing.T) {
	const peers = 1024
	var free bodies
	var stats Stats
	list := make([]sender, peers)
	for i := range list {
		list[i].init(&stats)
	}
	for n := 0; n < queueMax; n++ {
		for i := range list {
			s := &list[i]
			p := s.open(bodyMost-prefixBytes, bodyMost, &free)
			if p == nil && n == 0 {
				t.Fatal("there is no memory for the first packet of a peer")
			}
			if p != nil {
				p.body = p.body[:bodyMost]
				s.sent(s.end-1, 1)
			}
		}
	}
	if most := memory.EtherStore + peers*bodyMost*5/4; free.out.used > most {
		t.Errorf("%d bytes of packets, want at most %d", free.out.used, most)
	}
}
