package verbs

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// castsMax bounds the casts of a connection that are not posted yet (Commit posts them): two for
// each slot of a ring.
const castsMax = 32

// skipPollsMax is how many successive calls of Poll skip the device after casts without
// notifications were the last requests posted: the peer answers casts in memory, which
// the engine polls, and a call of the device costs as much as all of that.
const skipPollsMax = 3

// cast is a small write whose completion is not reported, in a slot.
type cast struct {
	slot   int32
	length uint32
	rkey   uint32
	notify uint32 // notification, 0: none
	remote uint64
}

// casts is the queue of casts of a connection that are not posted, beginning at first.
type casts struct {
	list        [castsMax]cast
	first, next uint32
}

func (q *casts) count() int { return int(q.next - q.first) }

func (q *casts) oldest() *cast { return &q.list[q.first%castsMax] }

// Cast starts a small write whose completion is not reported (link.Caster). It precedes
// the frames that are posted later, on the same queue pair.
func (l *Link) Cast(peer link.Peer, data []byte, dst link.Key, notify uint64) bool {
	c := l.conns[peer]
	theirs, ok := domainOf(dst)
	if c == nil || c.err != nil || !ok || theirs != 0 || len(data) > slotBytes || notify>>notifyShift != 0 {
		return false
	}
	if c.casts.count() == castsMax {
		c.pump()
		if c.casts.count() == castsMax {
			return false
		}
	}
	s := c.allocSlot()
	if s < 0 {
		return false
	}
	copy(l.stage.slot(s), data)
	c.casts.list[c.casts.next%castsMax] = cast{slot: s, length: uint32(len(data)), rkey: uint32(dst.Key), notify: uint32(notify), remote: dst.Addr}
	c.casts.next++
	c.schedule()
	return true
}

// sendCasts posts casts, as far as there is room, and credit for their notifications.
func (c *conn) sendCasts() {
	if c.casts.count() == 0 {
		return
	}
	plain := true
	for c.casts.count() > 0 && c.room() > 0 && c.err == nil {
		x := c.casts.oldest()
		r := request{
			op: opWrite, addr: c.l.stage.addr(x.slot), lkey: c.l.stage.at.lkey, length: x.length, remote: x.remote, rkey: x.rkey,
		}
		if x.notify != 0 {
			if plain = false; c.credit.free() == 0 {
				return
			}
			r.op, r.imm = opWriteNotify, c.credit.spendNotify(x.notify)
		}
		p := noWork
		p.slot = x.slot
		c.casts.first++
		c.l.stats.Writes++
		c.l.stats.BytesOut += uint64(x.length)
		c.pushStaged(r, p)
	}
	if l := c.l; plain && l.cq.polled && c.casts.count() == 0 {
		l.cq.skipPolls, l.cq.polled = skipPollsMax, false
	}
}
