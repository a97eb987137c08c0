package p2p

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Unexpected messages use no more memory than their senders have credit, if windows are widened
// out of a budget. Memory is counted in pages then. Messages of less than a page lie in pages of
// their peer, and the credit for them returns when the page is empty: a peer that leaves one small
// message in each page leaves its credit there as well. A page or a larger range that is free and
// was used stays in memory, up to Config.WarmBytes in all; beyond that, credit returns when the
// kernel has got the rest back, a bounded number of ranges in a turn (Trim).
//
// So the pool has touched at most the credit of all peers, two pages and a passing payload for each
// peer, and WarmBytes.

const pageBytes = 4 << 10

// page is a page of messages of one class of one peer.
type page struct {
	used uint8 // slots that were used since the page was empty
	left uint8 // messages in it
}

// pages are the pages of a peer with room for another message, by class: offset + 1; 0: none.
type pages [2]uint64

// paged is a pool whose small messages lie in pages of their peers.
type paged struct {
	pool
	pages []page // by number of the page in the region
	whole bool   // messages of all classes lie alone, and their credit returns at once
}

// keep returns memory for an unexpected message of a peer.
func (x *paged) keep(of *pages, n uint64) (link.Ref, bool) {
	if x.whole || n > pageBytes/4 {
		return x.get(n)
	}
	k := poolClass(n)
	if of[k] == 0 {
		ref, ok := x.get(pageBytes)
		if !ok {
			return ref, false
		}
		for uint64(len(x.pages)) <= ref.Off/pageBytes {
			x.pages = append(x.pages, page{})
		}
		x.pages[ref.Off/pageBytes], of[k] = page{}, ref.Off+1
	}
	at := of[k] - 1
	pg := &x.pages[at/pageBytes]
	ref := link.Ref{Region: x.region, Off: at + uint64(pg.used)*poolClasses[k], Len: n}
	pg.used++
	pg.left++
	if uint64(pg.used)*poolClasses[k] == pageBytes {
		of[k] = 0
	}
	return ref, true
}

// free frees the memory of a message of a peer, and returns the credit that is free by that.
func (x *paged) free(of *pages, r link.Ref) (credit uint64) {
	if x.whole || r.Len > pageBytes/4 {
		x.put(r)
		return charge(r.Len)
	}
	at := r.Off &^ (pageBytes - 1)
	pg := &x.pages[at/pageBytes]
	if pg.left--; pg.left > 0 {
		return 0
	}
	k := poolClass(r.Len)
	if of[k] == at+1 {
		of[k] = 0
	}
	x.put(link.Ref{Region: x.region, Off: at, Len: pageBytes})
	return uint64(pg.used) * poolClasses[k]
}

// trimMost is how many ranges go back to the kernel in a turn: each is a system call.
const trimMost = 16

// unpark frees the memory of an eager message of n bytes, and gives the credit for it back.
func (rx *receiver) unpark(p *peer, at link.Ref, n uint64) {
	credit := charge(n)
	if at.Region != channel.RegionNone {
		credit = rx.pool.free(&p.pages, at)
	}
	switch {
	case credit == 0:
	case rx.overWarm():
		if p.withheld == 0 {
			rx.withheld = append(rx.withheld, p.ID())
		}
		p.withheld += credit
	default:
		rx.channel.Consumed(p.Peer, credit)
	}
}

func (rx *receiver) overWarm() bool { return !rx.pool.whole && rx.pool.warm > rx.cfg.WarmBytes }

// Trims reports whether Trim has something to do.
func (rx *receiver) Trims() bool { return len(rx.withheld) > 0 || rx.overWarm() }

// Trim gives free memory back to the kernel, and then the credit that waits for that to peers.
func (rx *receiver) Trim() {
	for range trimMost {
		if !rx.overWarm() {
			break
		}
		rx.ports.Discard(rx.pool.cool())
		rx.stats.Discards++
	}
	for range trimMost {
		last := len(rx.withheld) - 1
		if last < 0 || rx.overWarm() {
			return
		}
		p := &rx.peers[rx.withheld[last]]
		rx.withheld = rx.withheld[:last]
		credit := p.withheld
		p.withheld = 0
		rx.channel.Consumed(p.Peer, credit)
	}
}
