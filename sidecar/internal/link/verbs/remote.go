package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// keyBit is set in every key, so that none is 0.
const keyBit = 1 << 32

// Register makes ref accessible to peers.
func (l *Link) Register(ref link.Ref) (link.Key, error) {
	if l.lost != nil {
		return link.Key{}, l.lost
	}
	if d := l.lending.byRegion[ref.Region]; d != nil {
		return d.registerLent(ref)
	}
	if l.regs.chooser.Exports(ref) {
		return l.regs.chooser.Export(ref)
	}
	return l.exportApart(ref) // the engine's own memory: a ring
}

// Expose registers a window for its whole lifetime, apart from the cached registrations
// of its memory (link.Abilities).
func (l *Link) Expose(ref link.Ref) (link.Key, error) {
	if l.lost != nil {
		return link.Key{}, l.lost
	}
	return l.exportApart(ref)
}

// exportApart registers memory for peers outside of the caches, which make room if
// necessary.
func (l *Link) exportApart(ref link.Ref) (link.Key, error) {
	k, err := exporter{l}.Register(ref)
	if err != nil && l.regs.chooser.Yield(ref.Len) { // ends unused registrations
		return exporter{l}.Register(ref)
	}
	return k, err
}

// Deregister ends a registration; for lent memory it ends the operations of all peers
// (Withdraw).
func (l *Link) Deregister(k link.Key) {
	if number, ok := domainOf(k); ok && number != 0 {
		if d := l.lending.domains[number]; d != nil {
			d.endAnswered(func(*lentQP) bool { return true })
		}
		return
	}
	if !l.regs.chooser.EndExport(k, false) {
		l.unexport(k)
	}
}

// Release ends the use of a registration (link.Abilities).
func (l *Link) Release(k link.Key) {
	if !l.regs.chooser.EndExport(k, true) {
		l.unexport(k)
	}
}

// exporter registers memory for peers (regcache.Registrar).
type exporter struct{ l *Link }

// Register makes ref accessible to peers.
func (x exporter) Register(ref link.Ref) (link.Key, error) {
	l := x.l
	mem := l.memory.Bytes(ref)
	r, err := l.nic.register(mem, randomAddress(mem), true)
	if err != nil {
		if l.regs.chooser.Knows(ref.Region) && l.lost == nil {
			l.regs.warnRefused(ref, err)
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
	if err := l.nic.deregister(r); err != nil && l.lost == nil {
		l.deviceLost(fmt.Errorf("ending a registration: %w", err))
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
		return fmt.Errorf("%w: %#x is not a key of a device", link.ErrKey, op.key.Key)
	case c == nil || c.err != nil:
		return fmt.Errorf("%w: not connected", link.ErrBroken)
	}
	op.length, op.regUpTo, op.slot, op.reg = op.local.Len, op.local.Len, -1, -1
	if d := l.lending.byRegion[op.local.Region]; d != nil || theirs != 0 {
		return c.startLent(op, d, theirs)
	}
	if err := c.prepareLocal(&op); err != nil {
		return err
	}
	c.ops.add(op)
	c.schedule()
	return nil
}

// prepareLocal gives op local memory that is registered: small ranges are copied, which
// costs less than a registration.
func (c *conn) prepareLocal(op *operation) error {
	l := c.l
	n := l.regs.have(op.local)
	if n < 0 && op.length <= slotBytes {
		if op.slot = c.allocSlot(); op.slot >= 0 {
			op.addr, op.lkey = l.stage.addr(op.slot), l.stage.at.lkey
			if op.write {
				copy(l.stage.slot(op.slot), l.memory.Bytes(op.local))
			}
			return nil
		}
	}
	if n < 0 {
		op.parted = l.regs.chooser.Knows(op.local.Region) && op.length > l.cfg.registerMax
		if err := l.nextPart(op); !errors.Is(err, link.ErrLater) {
			return err
		}
		op.regUpTo = 0 // the part is registered when it is posted
		return nil
	}
	op.reg = n
	op.addr, op.lkey = l.regs.address(n, op.local)
	return nil
}

// nextPart registers the next part of op's local memory; only large operations have more
// than one.
func (l *Link) nextPart(op *operation) error {
	if op.reg >= 0 {
		l.regs.releaseUse(op.reg) // the requests in flight have their own uses
		op.reg = -1
	}
	part := op.local.Slice(op.posted, op.length-op.posted)
	if op.parted {
		part = part.Part(l.cfg.registerMax)
	}
	n, err := l.regs.use(part)
	if err != nil {
		return fmt.Errorf("verbs: registering %d bytes with %s: %w", part.Len, l.port.Device, err)
	}
	addr, lkey := l.regs.address(n, part)
	op.reg, op.addr, op.lkey, op.regUpTo = n, addr-op.posted, lkey, op.posted+part.Len
	return nil
}

// sendOperations posts pieces of the operations in turn.
func (c *conn) sendOperations() {
	for c.err == nil && c.room() > opsLeave {
		n := c.ops.turn()
		if n < 0 {
			return
		}
		op := &c.ops.table[n]
		if op.needsPart() {
			if err := c.l.nextPart(op); errors.Is(err, link.ErrLater) {
				c.l.todo.late = append(c.l.todo.late, c)
				return
			} else if err != nil {
				if c.ops.stop(n, err) {
					c.abort(&c.ops, n)
				}
				continue
			}
		}
		off, length, last := c.ops.piece(n)
		withNotify := last && op.notify != 0
		if withNotify && c.credit.free() == 0 {
			return // until the peer posts receives again
		}
		slot := int32(-1)
		if withNotify && op.notify>>notifyShift != 0 {
			if slot = c.allocSlot(); slot < 0 {
				return
			}
		}
		c.ops.sent(n, length, c.pushPiece(op, n, off, length, withNotify, slot))
	}
}

// pushPiece posts a piece, with the notification if notify is true, and returns the
// number of requests. A notification of more than 30 bits is a message in slot, after the
// piece: the operation ends with that.
func (c *conn) pushPiece(op *operation, n int32, off, length uint64, withNotify bool, slot int32) int {
	r := request{
		op: opRead, addr: op.addr + off, lkey: op.lkey, length: uint32(length), remote: op.key.Addr + off, rkey: uint32(op.key.Key),
	}
	if op.write {
		r.op = opWrite
		if int(length) <= c.l.batch.inline {
			r.flags |= flagInline
		}
		if withNotify && slot < 0 {
			r.op, r.imm = opWriteNotify, c.credit.spendNotify(uint32(op.notify))
		}
		c.l.stats.Writes++
	} else {
		c.l.stats.Reads++
	}
	p := posted{slot: -1, op: n, reg: -1}
	if op.parted {
		p.reg = op.reg
		c.l.regs.retain(p.reg)
	}
	c.push(r, p)
	if slot < 0 {
		return 1
	}
	l := c.l
	binary.LittleEndian.PutUint64(l.stage.slot(slot), op.notify)
	c.pushStaged(request{
		op: opSend, imm: c.credit.spend() | notifyBit, addr: l.stage.addr(slot), lkey: l.stage.at.lkey, length: notifyBytes,
	}, posted{slot: slot, op: n, reg: -1})
	return 2
}

const notifyBytes = 8

func parseNotify(b []byte) (uint64, error) {
	if len(b) != notifyBytes {
		return 0, fmt.Errorf("%w: notification of %d bytes, want %d", link.ErrProtocol, len(b), notifyBytes)
	}
	return binary.LittleEndian.Uint64(b), nil
}

// endOperations ends all operations of a destroyed queue pair.
func (c *conn) endOperations(o *operations, cause error) {
	l := c.l
	for i := range o.table {
		op := &o.table[i]
		if !op.used {
			continue
		}
		err := cause
		if op.refused {
			err = fmt.Errorf("%w: refused by device %s of peer %d", link.ErrKey, c.remote.device, c.peer)
		}
		if op.reg >= 0 {
			l.regs.releaseUse(op.reg)
		}
		if op.slot >= 0 {
			c.freeSlot(op.slot)
		}
		l.ended = append(l.ended, ended{c.peer, op.token, err})
	}
	*o = operations{}
}

// abort ends operation n of o, which has no requests in flight, with its error.
func (c *conn) abort(o *operations, n int32) {
	op := o.table[n]
	o.remove(n)
	if op.reg >= 0 {
		c.l.regs.releaseUse(op.reg)
	}
	c.l.ended = append(c.l.ended, ended{c.peer, op.token, op.err})
}

// operated handles the completion of a request of operation n.
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
	c.ops.remove(n)
	if op.write {
		l.stats.BytesOut += op.length
	} else {
		l.stats.BytesIn += op.length
	}
	c.settleOperation(&op)
	sink.Done(c.peer, op.token, nil)
}

// settleOperation releases the resources of an operation that has succeeded.
func (c *conn) settleOperation(op *operation) {
	l := c.l
	if op.slot >= 0 {
		if !op.write {
			copy(l.memory.Bytes(op.local), l.stage.slot(op.slot)[:op.length])
		}
		c.freeSlot(op.slot)
	}
	if op.reg >= 0 {
		l.regs.releaseUse(op.reg)
	}
}
