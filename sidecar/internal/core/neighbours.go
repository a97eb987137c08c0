package core

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Sidecars of one machine tell each other where they are while large messages move
// between them (P§5.8). What they do about it is the engine's.

// Processors is a set of them, of the first 512 of a machine.
type Processors [wire.PlaceMax / 8]uint64

// Has reports whether a processor is in the set.
func (s *Processors) Has(cpu int) bool {
	return cpu >= 0 && cpu < 64*len(s) && s[cpu/64]>>(cpu%64)&1 != 0
}

// Add puts a processor into the set, if it is one of those that can be.
func (s *Processors) Add(cpu int) {
	if cpu >= 0 && cpu < 64*len(s) {
		s[cpu/64] |= 1 << (cpu % 64)
	}
}

// Seat is where a sidecar is.
type Seat struct {
	CPU      int        // processor of the engine's thread; negative: not known
	Computes Processors // on which its ranks compute
}

// Neighbour is a peer on the same machine.
type Neighbour struct {
	Peer link.Peer
	Seat
	Heard int64 // when it last said so
}

// seating is what a peer was told, and has told.
type seating struct {
	told      Seat
	at        int64 // when; 0: nothing yet
	elsewhere bool  // it is on another machine
	neighbour int   // its place in Core.nearby, plus one; 0: it has told nothing
}

// How often a peer is told: a change at most, and the same again.
const (
	seatChanged = int64(time.Millisecond)
	seatAgain   = int64(50 * time.Millisecond)
)

// largePart is from where on a part of a put or get, or a message that goes at once, is
// worth a place: moving it takes as long as waking who does it.
const largePart = 32 << 10

// Moved counts the pieces of large messages that were announced, asked for or
// carried: it stands still while there is none.
func (c *Core) Moved() uint64 { return c.moved }

// moves counts a piece that is exchanged with p.
func (c *Core) moves(p *peer) {
	c.moved++
	if !p.isMover && !p.self && c.cfg.Machine != 0 {
		p.isMover = true
		c.movers = append(c.movers, p.id)
	}
}

// movesPart counts n bytes that are exchanged with p, if they are many.
func (c *Core) movesPart(p *peer, n uint64) {
	if n >= largePart {
		c.moves(p)
	}
}

// Neighbours are the peers that have told where they are, until the next event.
func (c *Core) Neighbours() []Neighbour { return c.nearby }

// Sit tells the peers with which large messages have moved since the last call, and
// which may be on this machine, where this sidecar is.
func (c *Core) Sit(now int64, s *Seat) {
	c.now = now
	for _, id := range c.movers {
		p := &c.peers[id]
		p.isMover = false
		if c.mayTell(p) && p.seated.due(now, s) {
			c.tellSeat(p, s)
		}
	}
	c.movers = c.movers[:0]
}

// mayTell reports whether a hint may be said to p: nothing follows a goodbye, and a
// failed job has other things to say.
func (c *Core) mayTell(p *peer) bool {
	return p.state == peerReady && !p.seated.elsewhere && !p.bye && p.byeSeq == 0 && c.fail == nil
}

func (t *seating) due(now int64, s *Seat) bool {
	return t.at == 0 || now-t.at >= seatAgain || now-t.at >= seatChanged && *s != t.told
}

func (c *Core) tellSeat(p *peer, s *Seat) {
	p.seated.told, p.seated.at = *s, c.now
	f, _ := c.emit(p, wire.Place)
	f.Head.A, f.Head.B = c.cfg.Machine, uint64(max(s.CPU, -1)+1)
	for i, word := range s.Computes {
		binary.LittleEndian.PutUint64(f.Inline[8*i:], word)
		if word != 0 {
			f.Head.Length = uint32(8 * (i + 1))
		}
	}
}

// onPlace takes what a peer says of its place, which is a hint like all that
// applications say of theirs.
func (c *Core) onPlace(p *peer, h *wire.Header, payload []byte) error {
	if h.A == 0 || h.B > 1<<16 || len(payload) > wire.PlaceMax {
		return fmt.Errorf("%w: a place on machine %d, processor %d, with %d bytes of others", link.ErrProtocol, h.A, h.B, len(payload))
	}
	if p.seated.elsewhere = h.A != c.cfg.Machine; p.seated.elsewhere {
		return nil
	}
	if p.seated.neighbour == 0 {
		c.nearby = append(c.nearby, Neighbour{Peer: p.id})
		p.seated.neighbour = len(c.nearby)
	}
	var b [wire.PlaceMax]byte
	copy(b[:], payload)
	n := &c.nearby[p.seated.neighbour-1]
	n.CPU, n.Heard = int(h.B)-1, c.now
	for i := range n.Computes {
		n.Computes[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return nil
}
