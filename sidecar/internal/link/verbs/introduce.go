package verbs

import (
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Two sidecars make a lentQP (api/wire/PROTOCOL.md §2.1) by messages of their connection.
//
//	asker                               answerer
//	makes a queue pair
//	  ask(number, domain, offer) ────►  makes a queue pair in that domain, connects it
//	            ◄─── answer(number, offer)
//	connects its own
//
// An end message says that a lentQP has ended, or will not be made.
const (
	lentAsk uint8 = 1 + iota
	lentAnswer
	lentEnd
)

// lentMessage is one of these messages.
type lentMessage struct {
	kind   uint8
	asker  bool   // lentEnd: sent by the asker
	number uint32 // number that the asker gave the lentQP
	domain uint32 // lentAsk: domain of the answering side
	offer  *offer // lentAsk and lentAnswer: queue pair of the sender
}

const lentFixed = 12

func (w *lentMessage) encode() []byte {
	b := make([]byte, lentFixed, lentFixed+OfferMax)
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

func parseLent(b []byte) (w lentMessage, err error) {
	if len(b) < lentFixed || b[0] < lentAsk || b[0] > lentEnd || b[1] > 1 || b[2] != 0 || b[3] != 0 {
		return w, fmt.Errorf("%w: malformed message of %d bytes about a queue pair for lent memory", link.ErrProtocol, len(b))
	}
	w = lentMessage{kind: b[0], asker: b[1] == 1, number: binary.LittleEndian.Uint32(b[4:]), domain: binary.LittleEndian.Uint32(b[8:])}
	if w.kind == lentEnd {
		if len(b) != lentFixed {
			return w, fmt.Errorf("%w: message of %d bytes about the end of a queue pair for lent memory, want %d", link.ErrProtocol, len(b), lentFixed)
		}
		return w, nil
	}
	o, err := parseOffer(b[lentFixed:])
	if err != nil {
		return w, link.Protocol(err)
	}
	w.offer = &o
	return w, nil
}

// lentOutMax bounds the messages that wait: two for each lentQP, and as many refusals.
const lentOutMax = 4 * lentQPsMax

// sendLent queues a message about a lentQP, which pump posts when the connection has
// room.
func (c *conn) sendLent(w lentMessage) {
	if c.ended || c.err != nil {
		return
	}
	c.lentOut = append(c.lentOut, w.encode())
	c.schedule()
}

// postLent posts the queued messages about lentQPs.
func (c *conn) postLent() {
	for len(c.lentOut) > 0 && c.credit.free() > 0 && c.room() > 0 && c.err == nil {
		slot := c.allocSlot()
		if slot < 0 {
			return
		}
		l := c.l
		n := copy(l.stage.slot(slot), c.lentOut[0])
		c.lentOut = c.lentOut[1:]
		c.pushStaged(request{
			op: opSend, imm: c.credit.spend() | notifyBit, addr: l.stage.addr(slot), lkey: l.stage.at.lkey, length: uint32(n),
		}, posted{slot: slot, op: -1, reg: -1})
	}
}

// onLent handles a message of the peer about a lentQP.
func (c *conn) onLent(b []byte) error {
	w, err := parseLent(b)
	if err != nil {
		return err
	}
	if !c.local.lends {
		return fmt.Errorf("%w: message about a queue pair for lent memory, which this sidecar does not use", link.ErrProtocol)
	}
	switch w.kind {
	case lentAsk:
		return c.answer(&w)
	case lentAnswer:
		if q := c.asked[w.number]; q != nil && q.pair != nil && q.remote == nil { // otherwise it has ended meanwhile
			q.remote = w.offer
			c.l.lending.steps.joins = append(c.l.lending.steps.joins, q)
		}
	case lentEnd:
		list := c.asked
		if w.asker {
			list = c.answered
		}
		if q := list[w.number]; q != nil {
			if q.asks && !q.served {
				c.noteFailure(q.domains()) // it was refused, or did not work: do not ask again at once
			}
			q.end(fmt.Errorf("%w: the peer has ended the queue pair for lent memory", link.ErrBroken), false)
		}
	}
	return nil
}

// answer makes the answerer's side of a lentQP, in a later turn. If it cannot be made,
// the request is refused, and the peer's messages are copied.
func (c *conn) answer(w *lentMessage) error {
	if len(c.lentOut) >= lentOutMax {
		return fmt.Errorf("%w: the peer asks for queue pairs without reading the %d answers that wait", link.ErrProtocol, len(c.lentOut))
	}
	if c.answered[w.number] != nil {
		return fmt.Errorf("%w: queue pair %d for lent memory exists already", link.ErrProtocol, w.number)
	}
	if err := c.tryAnswer(w); err != nil {
		c.l.cfg.Log.Debug("no queue pair for memory that an application lends", "peer", c.peer, "cause", err)
		c.sendLent(lentMessage{kind: lentEnd, number: w.number})
	}
	return nil
}

func (c *conn) tryAnswer(w *lentMessage) (err error) {
	d := c.l.lending.domains[w.domain]
	if w.domain == 0 {
		d, err = c.l.ownDomain()
	}
	if err != nil {
		return err
	}
	if d == nil {
		return errDomain
	}
	q := &lentQP{c: c, d: d, number: w.number, remote: w.offer}
	if err := c.want(q); err != nil {
		return err
	}
	c.answered[w.number] = q
	return nil
}
