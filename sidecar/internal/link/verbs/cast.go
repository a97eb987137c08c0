package verbs

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// castsMax is how many casts of a connection wait for Commit, two for each slot of a ring.
const castsMax = 32

// unaskedMax is how many calls of Poll in succession do not ask the device, where the
// last thing that was posted are casts without notices: who sends these is answered in
// memory, where the engine looks, and a call of the device costs as much as all of that.
const unaskedMax = 3

// cast is a small write whose end nobody waits for, in a slot.
type cast struct {
	slot   int32
	length uint32
	rkey   uint32
	notice uint32 // 0: none
	remote uint64
}

// casts are those of a connection that are not posted, from first on.
type casts struct {
	list        [castsMax]cast
	first, next uint32
}

func (q *casts) count() int { return int(q.next - q.first) }

func (q *casts) oldest() *cast { return &q.list[q.first%castsMax] }

// Cast starts a small write whose end is not told (link.Caster). It goes before the
// frames that are posted later, by the same queue pair.
func (l *Link) Cast(peer link.Peer, data []byte, dst link.Key, notify uint64) bool {
	c := l.conns[peer]
	theirs, ok := domainOf(dst)
	if c == nil || c.err != nil || !ok || theirs != 0 || len(data) > slotBytes || notify>>noticeShift != 0 {
		return false
	}
	if c.casts.count() == castsMax {
		c.pump()
		if c.casts.count() == castsMax {
			return false
		}
	}
	s := c.slot()
	if s < 0 {
		return false
	}
	copy(l.stage.slot(s), data)
	c.casts.list[c.casts.next%castsMax] = cast{slot: s, length: uint32(len(data)), rkey: uint32(dst.Key), notice: uint32(notify), remote: dst.Addr}
	c.casts.next++
	c.later()
	return true
}

// sendCasts posts casts, as far as there is room and credit for their notices.
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
		if x.notice != 0 {
			if plain = false; c.credit.free() == 0 {
				return
			}
			r.op, r.imm = opWriteNotify, c.credit.spendNotice(x.notice)
		}
		p := nothing
		p.slot = x.slot
		c.casts.first++
		c.l.stats.Writes++
		c.l.stats.BytesOut += uint64(x.length)
		c.pushStaged(r, p)
	}
	if l := c.l; plain && l.cq.asked && c.casts.count() == 0 {
		l.cq.unasked, l.cq.asked = unaskedMax, false
	}
}
