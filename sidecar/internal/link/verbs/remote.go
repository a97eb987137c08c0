package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// keyBit is in every key, so that none is 0.
const keyBit = 1 << 32

// Register makes ref reachable by peers.
func (l *Link) Register(ref link.Ref) (link.Key, error) {
	if l.gone != nil {
		return link.Key{}, l.gone
	}
	if d := l.lending.byRegion[ref.Region]; d != nil {
		return d.registerLent(ref)
	}
	if l.known.chooser.Exports(ref) {
		return l.known.chooser.Export(ref)
	}
	return l.exportApart(ref) // the engine's own: a ring
}

// Expose registers a window: for as long as that is there, and whatever else its
// memory is used for (link.Abilities).
func (l *Link) Expose(ref link.Ref) (link.Key, error) {
	if l.gone != nil {
		return link.Key{}, l.gone
	}
	return l.exportApart(ref)
}

// exportApart registers what peers reach beside what the caches keep, which gives way.
func (l *Link) exportApart(ref link.Ref) (link.Key, error) {
	k, err := exporter{l}.Register(ref)
	if err != nil && l.known.chooser.Yield(ref.Len) { // for what nobody uses now
		return exporter{l}.Register(ref)
	}
	return k, err
}

// Deregister ends a registration; of lent memory what all peers do with it (Withdraw).
func (l *Link) Deregister(k link.Key) {
	if number, ok := domainOf(k); ok && number != 0 {
		if d := l.lending.domains[number]; d != nil {
			d.endAnswered(func(*lane) bool { return true })
		}
		return
	}
	if !l.known.chooser.EndExport(k, false) {
		l.unexport(k)
	}
}

// Release ends the use of a registration (link.Abilities).
func (l *Link) Release(k link.Key) {
	if !l.known.chooser.EndExport(k, true) {
		l.unexport(k)
	}
}

// exporter registers what peers reach (regcache.Registrar).
type exporter struct{ l *Link }

// Register makes ref reachable by peers.
func (x exporter) Register(ref link.Ref) (link.Key, error) {
	l := x.l
	mem := l.memory.Bytes(ref)
	r, err := l.nic.register(mem, randomAddress(mem), true)
	if err != nil {
		if l.known.chooser.Knows(ref.Region) && l.gone == nil {
			l.known.refused(ref, err)
		}
		return link.Key{}, fmt.Errorf("verbs: registering %d bytes with %s: %w", ref.Len, l.port.Device, err)
	}
	k := link.Key{Key: keyBit | uint64(r.rkey), Addr: r.addr}
	l.exported[k] = r
	l.stats.Registers++
	return k, nil
}

// Deregister ends registrations.
func (x exporter) Deregister(keys []link.Key) {
	for _, k := range keys {
		x.l.unexport(k)
	}
}

func (l *Link) unexport(k link.Key) {
	r, ok := l.exported[k]
	if !ok {
		return
	}
	delete(l.exported, k)
	if err := l.nic.deregister(r); err != nil && l.gone == nil {
		l.lose(fmt.Errorf("ending a registration: %w", err))
	}
}

// Read starts a remote read.
func (l *Link) Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error {
	return l.start(peer, operation{token: token, local: dst, key: src})
}

// Write starts a remote write.
func (l *Link) Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	return l.start(peer, operation{token: token, local: src, key: dst, notify: notify, write: true})
}

func (l *Link) start(peer link.Peer, op operation) error {
	c := l.conns[peer]
	theirs, ok := domainOf(op.key)
	switch {
	case !ok:
		return fmt.Errorf("%w: key %#x is none of a device", link.ErrKey, op.key.Key)
	case c == nil || c.err != nil:
		return fmt.Errorf("%w: not connected", link.ErrBroken)
	}
	op.length, op.upto, op.slot, op.known = op.local.Len, op.local.Len, -1, -1
	if d := l.lending.byRegion[op.local.Region]; d != nil || theirs != 0 {
		return c.startLane(op, d, theirs)
	}
	if err := c.reach(&op); err != nil {
		return err
	}
	c.ops.add(op)
	c.later()
	return nil
}

// reach makes the local memory of op one that the device knows: small ranges are
// copied, which costs less than to register them.
func (c *conn) reach(op *operation) error {
	l := c.l
	n := l.known.have(op.local)
	if n < 0 && op.length <= slotBytes {
		if op.slot = c.slot(); op.slot >= 0 {
			op.addr, op.lkey = l.stage.addr(op.slot), l.stage.at.lkey
			if op.write {
				copy(l.stage.slot(op.slot), l.memory.Bytes(op.local))
			}
			return nil
		}
	}
	if n < 0 {
		op.parted = l.known.chooser.Knows(op.local.Region) && op.length > l.cfg.registerMax
		if err := l.nextPart(op); !errors.Is(err, link.ErrLater) {
			return err
		}
		op.upto = 0 // when it is posted
		return nil
	}
	op.known = n
	op.addr, op.lkey = l.known.where(n, op.local)
	return nil
}

// nextPart makes the next part of op's local memory one that the device knows; of all
// but large operations it is the only one.
func (l *Link) nextPart(op *operation) error {
	if op.known >= 0 {
		l.known.done(op.known) // but for the requests under way
		op.known = -1
	}
	part := op.local.Slice(op.posted, op.length-op.posted)
	if op.parted {
		part = part.Part(l.cfg.registerMax)
	}
	n, err := l.known.use(part)
	if err != nil {
		return fmt.Errorf("verbs: registering %d bytes with %s: %w", part.Len, l.port.Device, err)
	}
	addr, lkey := l.known.where(n, part)
	op.known, op.addr, op.lkey, op.upto = n, addr-op.posted, lkey, op.posted+part.Len
	return nil
}

// sendOperations posts pieces of the operations whose turn it is.
func (c *conn) sendOperations() {
	for c.err == nil && c.room() > opsLeave {
		n := c.ops.turn()
		if n < 0 {
			return
		}
		op := &c.ops.table[n]
		if op.reached() {
			if err := c.l.nextPart(op); errors.Is(err, link.ErrLater) {
				c.l.todo.late = append(c.l.todo.late, c)
				return
			} else if err != nil {
				if c.ops.giveUp(n, err) {
					c.abort(&c.ops, n)
				}
				continue
			}
		}
		off, length, last := c.ops.piece(n)
		notices := last && op.notify != 0
		if notices && c.credit.free() == 0 {
			return // until the peer posts receives again
		}
		slot := int32(-1)
		if notices && op.notify>>noticeShift != 0 {
			if slot = c.slot(); slot < 0 {
				return
			}
		}
		c.ops.sent(n, length, c.pushPiece(op, n, off, length, notices, slot))
	}
}

// pushPiece posts a piece, with the notice if it is the last, and returns how many
// requests it were. A notice of more than 30 bits is a message behind it, in slot:
// the operation ends with that.
func (c *conn) pushPiece(op *operation, n int32, off, length uint64, notices bool, slot int32) int {
	r := request{
		op: opRead, addr: op.addr + off, lkey: op.lkey, length: uint32(length), remote: op.key.Addr + off, rkey: uint32(op.key.Key),
	}
	if op.write {
		r.op = opWrite
		if int(length) <= c.l.batch.inline {
			r.flags |= flagInline
		}
		if notices && slot < 0 {
			r.op, r.imm = opWriteNotify, c.credit.spendNotice(uint32(op.notify))
		}
		c.l.stats.Writes++
	} else {
		c.l.stats.Reads++
	}
	p := posted{slot: -1, op: n, known: -1}
	if op.parted {
		p.known = op.known
		c.l.known.again(p.known)
	}
	c.push(r, p)
	if slot < 0 {
		return 1
	}
	l := c.l
	binary.LittleEndian.PutUint64(l.stage.slot(slot), op.notify)
	c.pushStaged(request{
		op: opSend, imm: c.credit.spend() | noticeBit, addr: l.stage.addr(slot), lkey: l.stage.at.lkey, length: noticeBytes,
	}, posted{slot: slot, op: n, known: -1})
	return 2
}

const noticeBytes = 8

func noticeOf(b []byte) (uint64, error) {
	if len(b) != noticeBytes {
		return 0, fmt.Errorf("%w: a notice of %d bytes, want %d", link.ErrProtocol, len(b), noticeBytes)
	}
	return binary.LittleEndian.Uint64(b), nil
}

// endOperations ends all operations of a queue pair that is gone.
func (c *conn) endOperations(o *operations, cause error) {
	l := c.l
	for i := range o.table {
		op := &o.table[i]
		if !op.used {
			continue
		}
		err := cause
		if op.refused {
			err = fmt.Errorf("%w: by %v of peer %d", link.ErrKey, c.remote.device, c.peer)
		}
		if op.known >= 0 {
			l.known.done(op.known)
		}
		if op.slot >= 0 {
			c.freeSlot(op.slot)
		}
		l.ended = append(l.ended, ended{c.peer, op.token, err})
	}
	*o = operations{}
}

// abort ends operation n of o, of which nothing is under way any more, with its error.
func (c *conn) abort(o *operations, n int32) {
	op := o.table[n]
	o.end(n)
	if op.known >= 0 {
		c.l.known.done(op.known)
	}
	c.l.ended = append(c.l.ended, ended{c.peer, op.token, op.err})
}

// operated is told that a request of operation n is done.
func (c *conn) operated(n int32, sink link.Sink) {
	if !c.ops.complete(n) {
		return
	}
	l := c.l
	op := c.ops.table[n]
	if op.err != nil {
		c.abort(&c.ops, n)
		return
	}
	c.ops.end(n)
	if op.write {
		l.stats.BytesOut += op.length
	} else {
		l.stats.BytesIn += op.length
	}
	c.settleOperation(&op)
	sink.Done(c.peer, op.token, nil)
}

// settleOperation gives back what an operation has used, which has ended well.
func (c *conn) settleOperation(op *operation) {
	l := c.l
	if op.slot >= 0 {
		if !op.write {
			copy(l.memory.Bytes(op.local), l.stage.slot(op.slot)[:op.length])
		}
		c.freeSlot(op.slot)
	}
	if op.known >= 0 {
		l.known.done(op.known)
	}
}
