package ether

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Net is a simulated network between the links of a job, in virtual time, for tests. It loses,
// repeats, delays and reorders packets, all by its random source.
type Net struct {
	Now     int64 // the virtual time, which the owner advances
	Rand    *rand.Rand
	Loss    float64                  // share of the packets that are lost
	Twice   float64                  // share of those that arrive twice
	Late    float64                  // share of those that are overtaken
	Delay   int64                    // of a packet; a late one takes up to ten times that
	PerByte int64                    // nanoseconds for a byte on the way to a link
	Queue   int64                    // the longest delay of a packet behind others: more are lost
	Full    bool                     // the carriers accept nothing now
	Drop    func(packet []byte) bool // loses chosen packets; nil: none
	ends    []end
	Sent    int // packets, and those that were lost, repeated and late
	Lost    int
	Doubled int
	Delayed int
}

// end is the way to one link.
type end struct {
	busy int64
	air  []flight
	out  []arrival
}

type flight struct {
	at     int64
	packet []byte
}

// simulatedCarrier is one link's end of a Net.
type simulatedCarrier struct {
	n    *Net
	self link.Peer
}

// NewSimulated returns a link whose packets go through n. Its clock has to be that of n.
func NewSimulated(cfg Config, memory link.Memory, n *Net) (*Link, error) {
	l := newLink(cfg, memory)
	l.out.carrier = &simulatedCarrier{n: n, self: cfg.Self}
	for len(n.ends) < cfg.Peers {
		n.ends = append(n.ends, end{})
	}
	return l, l.sleeper.open(cfg.Stream.FD())
}

// MeetSimulated connects the links of two pods without probes, for packets of a size. It
// returns the Endpoints for Join.
func MeetSimulated(a, b *Link, packet int) (ea, eb *Endpoint, err error) {
	ea, eb = a.Prepare(b.cfg.Self), b.Prepare(a.cfg.Self)
	if _, err = ea.accept(eb.Offer()); err == nil {
		_, err = eb.accept(ea.Offer())
	}
	ea.c.to, eb.c.to = simulatedAddress(b.cfg.Self), simulatedAddress(a.cfg.Self)
	ea.sized(packet)
	eb.sized(packet)
	return ea, eb, err
}

// NextSimulated returns the time of the next timer or arrival after now that concerns the
// link; 0: there is none.
func (l *Link) NextSimulated() (at int64) {
	n := l.out.carrier.(*simulatedCarrier).n
	if l.next > n.Now {
		at = l.next
	}
	for _, f := range n.ends[l.cfg.Self].air {
		if f.at > n.Now && (at == 0 || f.at < at) {
			at = f.at
		}
	}
	return at
}

func simulatedAddress(p link.Peer) (a address) {
	binary.LittleEndian.PutUint32(a.raw[:], uint32(p))
	a.n = 4
	return a
}

func (c *simulatedCarrier) send(list []batch) int {
	if c.n.Full {
		return 0
	}
	for _, b := range list {
		for data := b.data; len(data) > 0; {
			k := min(b.size, len(data))
			_ = c.sendOne(b.to, data[:k]) // never fails
			data = data[k:]
		}
	}
	return len(list)
}

func (c *simulatedCarrier) sendOne(to *address, packet []byte) error {
	c.n.put(int(binary.LittleEndian.Uint32(to.raw[:])), packet)
	return nil
}

// put sends a packet to a link.
func (n *Net) put(to int, packet []byte) {
	e := &n.ends[to]
	n.Sent++
	e.busy = max(e.busy, n.Now) + int64(len(packet))*n.PerByte
	if e.busy-n.Now > n.Queue || n.Rand.Float64() < n.Loss || n.Drop != nil && n.Drop(packet) {
		n.Lost++
		return
	}
	times := 1
	if n.Rand.Float64() < n.Twice {
		times = 2
		n.Doubled++
	}
	for range times {
		at := e.busy + n.Delay
		if n.Rand.Float64() < n.Late {
			at += n.Rand.Int64N(9*n.Delay + 1)
			n.Delayed++
		}
		e.air = append(e.air, flight{at, append([]byte(nil), packet...)})
	}
}

func (c *simulatedCarrier) receive() ([]arrival, bool) {
	e := &c.n.ends[c.self]
	e.out = e.out[:0]
	kept := e.air[:0]
	for _, f := range e.air {
		if f.at > c.n.Now {
			kept = append(kept, f)
			continue
		}
		e.out = append(e.out, arrival{data: f.packet, size: len(f.packet)})
	}
	e.air = kept
	return e.out, false
}

func (c *simulatedCarrier) addressOf(netip.AddrPort) (address, error) { return address{}, nil }
func (c *simulatedCarrier) full() int                                 { return 1 }
func (c *simulatedCarrier) dropped() uint64                           { return 0 }
func (c *simulatedCarrier) descriptor() int                           { return -1 }
func (c *simulatedCarrier) close() error                              { return nil }
