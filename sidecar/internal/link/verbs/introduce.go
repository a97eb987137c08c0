package verbs

import (
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// How two sidecars come by a lane (api/wire/PROTOCOL.md §2.1): by messages of their
// connection.
//
//	asker                               answerer
//	makes a queue pair
//	  ask(number, domain, offer) ────►  makes a queue pair in that domain, connects it
//	            ◄─── answer(number, offer)
//	connects its own
//
// End says that a lane is gone, or that it will not be.
const (
	laneAsk uint8 = 1 + iota
	laneAnswer
	laneEnd
)

// laneWord is one of these messages.
type laneWord struct {
	kind   uint8
	asker  bool   // of laneEnd: said by the side that has asked
	number uint32 // of the lane, the asker's
	domain uint32 // of laneAsk: the answerer's
	offer  *offer // of laneAsk and laneAnswer
}

const laneFixed = 12

func (w *laneWord) encode() []byte {
	b := make([]byte, laneFixed, laneFixed+OfferMax)
	b[0] = w.kind
	if w.asker {
		b[1] = 1
	}
	binary.LittleEndian.PutUint32(b[4:], w.number)
	binary.LittleEndian.PutUint32(b[8:], w.domain)
	if w.offer != nil {
		b = append(b, w.offer.encode()...)
	}
	return b
}

func parseLane(b []byte) (w laneWord, err error) {
	if len(b) < laneFixed || b[0] < laneAsk || b[0] > laneEnd || b[1] > 1 || b[2] != 0 || b[3] != 0 {
		return w, fmt.Errorf("%w: %d bytes about a queue pair for lent memory", link.ErrProtocol, len(b))
	}
	w = laneWord{kind: b[0], asker: b[1] == 1, number: binary.LittleEndian.Uint32(b[4:]), domain: binary.LittleEndian.Uint32(b[8:])}
	if w.kind == laneEnd {
		if len(b) != laneFixed {
			return w, fmt.Errorf("%w: %d bytes about the end of a queue pair", link.ErrProtocol, len(b))
		}
		return w, nil
	}
	o, err := parseOffer(b[laneFixed:])
	if err != nil {
		return w, link.Protocol(err)
	}
	w.offer = &o
	return w, nil
}

// wordsMax bounds the words that wait: two for each lane, and as many refusals.
const wordsMax = 4 * lanesMax

// say sends a word about a lane, when the connection has room for it.
func (c *conn) say(w laneWord) {
	if c.ended || c.err != nil {
		return
	}
	c.words = append(c.words, w.encode())
	c.later()
}

// sayWords posts what is to be said about lanes.
func (c *conn) sayWords() {
	for len(c.words) > 0 && c.credit.free() > 0 && c.room() > 0 && c.err == nil {
		slot := c.slot()
		if slot < 0 {
			return
		}
		l := c.l
		n := copy(l.stage.slot(slot), c.words[0])
		c.words = c.words[1:]
		c.pushStaged(request{
			op: opSend, imm: c.credit.spend() | noticeBit, addr: l.stage.addr(slot), lkey: l.stage.at.lkey, length: uint32(n),
		}, posted{slot: slot, op: -1, known: -1})
	}
}

// heard takes the peer's word about a lane.
func (c *conn) heard(b []byte) error {
	w, err := parseLane(b)
	if err != nil {
		return err
	}
	if !c.local.lanes {
		return fmt.Errorf("%w: a queue pair for lent memory, and nothing is lent", link.ErrProtocol)
	}
	switch w.kind {
	case laneAsk:
		return c.answer(&w)
	case laneAnswer:
		if ln := c.asked[w.number]; ln != nil && ln.pair != nil && ln.remote == nil { // else it has ended meanwhile
			ln.remote = w.offer
			c.l.lending.steps.joins = append(c.l.lending.steps.joins, ln)
		}
	case laneEnd:
		list := c.asked
		if w.asker {
			list = c.answered
		}
		if ln := list[w.number]; ln != nil {
			if ln.asks && !ln.served {
				c.failed(ln.ends()) // it was refused, or was of no use: not to be asked for for ever
			}
			ln.end(fmt.Errorf("%w: the peer has ended the queue pair for lent memory", link.ErrBroken), false)
		}
	}
	return nil
}

// answer has the answerer's end of a lane made. What cannot be made is refused; the peer's
// messages are copied then.
func (c *conn) answer(w *laneWord) error {
	if len(c.words) >= wordsMax {
		return fmt.Errorf("%w: it asks for more queue pairs than it hears answers", link.ErrProtocol)
	}
	if c.answered[w.number] != nil {
		return fmt.Errorf("%w: queue pair %d for lent memory is there already", link.ErrProtocol, w.number)
	}
	if err := c.tryAnswer(w); err != nil {
		c.l.cfg.Log.Debug("no queue pair for memory that an application lends", "peer", c.peer, "cause", err)
		c.say(laneWord{kind: laneEnd, number: w.number})
	}
	return nil
}

func (c *conn) tryAnswer(w *laneWord) (err error) {
	d := c.l.lending.domains[w.domain]
	if w.domain == 0 {
		d, err = c.l.side()
	}
	if err != nil {
		return err
	}
	if d == nil {
		return errDomain
	}
	ln := &lane{c: c, d: d, number: w.number, remote: w.offer}
	if err := c.want(ln); err != nil {
		return err
	}
	c.answered[w.number] = ln
	return nil
}
