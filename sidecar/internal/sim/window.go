package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// windowNumber is the number of the window of a job. Each rank's part consists of a counter,
// a slot for every rank, to which only that rank writes, and a ledger, which ranks change
// under the window's lock.
const (
	windowNumber = 9
	counterBytes = 64
	slotBytes    = 32 << 10
	ledgerBytes  = 128
)

// exposed is a rank's part of the window, and its expected content at the end.
type exposed struct {
	at    int // offset in the arena
	freed bool
	want  []byte
	count uint64
	turns uint64 // changes of the ledger
	used  []int  // allocated bytes of each rank's slot
}

// nextOffset returns the offset of the next bytes of a rank.
func (x *exposed) nextOffset(rank uint32) int {
	return counterBytes + int(rank)*slotBytes + x.used[rank]
}

// rma is an operation on the window.
type rma struct {
	op     shm.Op
	target uint32
	off, n int
	addr   int
	data   []byte // bytes to put, or bytes that a get must return
	add    uint64
	lands  int  // offset of the bytes that were put, if the operation is a wait
	before *rma // the get before a put to the ledger
	ledger bool
}

func (x *rma) describe(a *app) shm.Descriptor {
	d := shm.Descriptor{Op: x.op, Context: windowNumber, Peer: x.target, Class: shm.ClassArena}
	switch x.op {
	case shm.OpWin:
		w := a.w.parts[a.rank]
		w.at = a.alloc(len(w.want))
		d.SetBody(uint64(w.at), uint64(len(w.want)), 0, 0)
	case shm.OpPut, shm.OpGet:
		x.addr = a.alloc(x.n)
		if x.before != nil {
			x.data = entryAfter(a.arena[x.before.addr:][:ledgerBytes])
		}
		if x.op == shm.OpPut {
			copy(a.arena[x.addr:], x.data)
		}
		d.SetBody(uint64(x.addr), uint64(x.n), uint64(x.off), 0)
	case shm.OpAcc:
		x.addr = a.alloc(8)
		binary.LittleEndian.PutUint64(a.arena[x.addr:], x.add)
		d.Tag = uint64(shm.TypeUint64)<<8 | uint64(shm.ReduceSum)
		d.SetBody(uint64(x.addr), 8, 0, 0)
	default: // the other operations have no memory
		d.Class = 0
		if x.op == shm.OpLock {
			d.Flags = shm.FlagExclusive
		}
	}
	return d
}

// entryAfter returns the next entry of the ledger: every word is one higher.
func entryAfter(entry []byte) []byte {
	next := make([]byte, len(entry))
	for i := 0; i < len(entry); i += 8 {
		binary.LittleEndian.PutUint64(next[i:], binary.LittleEndian.Uint64(entry[i:])+1)
	}
	return next
}

func (x *rma) ended(a *app, d *shm.Descriptor) error {
	if d.Status != shm.StatusOK {
		return fmt.Errorf("operation %d on the window of rank %d ended with status %d", x.op, x.target, d.Status)
	}
	switch x.op {
	case shm.OpGet:
		if x.ledger {
			entry := a.arena[x.addr:][:x.n]
			if !bytes.Equal(entry[8:], entry[:x.n-8]) {
				return fmt.Errorf("rank %d found the ledger of rank %d half written: %x", a.rank, x.target, entry)
			}
			return nil
		}
		if !bytes.Equal(a.arena[x.addr:x.addr+x.n], x.data) {
			return fmt.Errorf("%d bytes got from rank %d at %d are not those that were put", x.n, x.target, x.off)
		}
	case shm.OpPut:
		fillByte(a.arena[x.addr:x.addr+x.n], 0xee) // the memory is the application's again
	case shm.OpWait:
		at := a.w.parts[a.rank].at + x.lands
		if !bytes.Equal(a.arena[at:at+len(x.data)], x.data) {
			return fmt.Errorf("rank %d: %d bytes at %d are not those that rank %d put before it completed", a.rank, len(x.data), x.lands, x.target)
		}
	case shm.OpWinFree:
		err := a.compareWindow()
		part := a.w.parts[a.rank]
		part.freed = true
		fillByte(a.arena[part.at:part.at+len(part.want)], 0xee) // the window's memory, too
		return err
	}
	return nil
}

// planWindow draws the accesses of every rank: puts into its own slots, each read back after a
// flush, and additions to the counters of others.
func (w *world) planWindow() {
	ranks := len(w.podOf)
	for range ranks {
		w.parts = append(w.parts, &exposed{want: make([]byte, counterBytes+ranks*slotBytes+ledgerBytes), used: make([]int, ranks)})
	}
	posts := make([][]*operation, ranks)
	defer func() {
		for i, a := range w.apps { // first, since a start may wait for them, and they wait for nothing
			a.extras = append(posts[i], a.extras...)
		}
	}()
	for _, a := range w.apps {
		for range w.rng.IntN(8) {
			t := uint32(w.rng.IntN(ranks))
			part := w.parts[t]
			n := 1 + w.rng.IntN(6000)
			if w.rng.IntN(4) == 0 {
				n = 1 + w.rng.IntN(slotBytes)
			}
			if part.used[a.rank]+n > slotBytes {
				continue
			}
			off := part.nextOffset(a.rank)
			part.used[a.rank] += n
			data := content(a.rank, t, 0xaaaa+uint64(w.salt), off, n)
			copy(part.want[off:], data)
			put := &operation{act: &rma{op: shm.OpPut, target: t, off: off, n: n, data: data}}
			flush := &operation{act: &rma{op: shm.OpFlush, target: t}}
			if w.rng.IntN(2) == 0 {
				flush.after = put
			}
			get := &operation{act: &rma{op: shm.OpGet, target: t, off: off, n: n, data: data}, after: flush}
			add := 1 + w.rng.Uint64N(1000)
			part.count += add
			acc := &operation{act: &rma{op: shm.OpAcc, target: t, add: add}}
			a.extras = append(a.extras, acc, put, flush, get)
			if off, n := part.nextOffset(a.rank), 1+w.rng.IntN(9000); w.rng.IntN(3) == 0 && part.used[a.rank]+n <= slotBytes {
				part.used[a.rank] += n
				data := content(a.rank, t, 0xbbbb+uint64(w.salt), off, n)
				copy(part.want[off:], data)
				posts[t] = append(posts[t], &operation{act: &rma{op: shm.OpPost, target: a.rank}})
				start := &operation{act: &rma{op: shm.OpStart, target: t}}
				a.extras = append(a.extras, start,
					&operation{act: &rma{op: shm.OpPut, target: t, off: off, n: n, data: data}, after: start},
					&operation{act: &rma{op: shm.OpComplete, target: t}})
				target := w.apps[t]
				target.extras = append(target.extras, &operation{act: &rma{op: shm.OpWait, target: a.rank, lands: off, data: data}})
			}
			if w.rng.IntN(3) == 0 {
				part.turns++
				a.extras = append(a.extras, turnAtLedger(t, ranks)...)
			}
		}
	}
}

// turnAtLedger returns the operations that add one to the ledger of a target. The unlock is
// posted after the put, whether or not the put has ended.
func turnAtLedger(target uint32, ranks int) []*operation {
	at := counterBytes + ranks*slotBytes
	lock := &operation{act: &rma{op: shm.OpLock, target: target}}
	seen := &rma{op: shm.OpGet, target: target, off: at, n: ledgerBytes, ledger: true}
	get := &operation{act: seen, after: lock}
	put := &operation{act: &rma{op: shm.OpPut, target: target, off: at, n: ledgerBytes, before: seen}, after: get}
	return []*operation{lock, get, put, {act: &rma{op: shm.OpUnlock, target: target}}}
}

// wrapWindow adds the creation of the window before a's operations, and its end after them.
func (w *world) wrapWindow(a *app) {
	barrier := func(salt uint64) *operation {
		return &operation{act: &collective{kind: shm.CollBarrier, salt: salt}}
	}
	open, ready := &operation{act: &rma{op: shm.OpWin}}, barrier(1)
	ready.after = open
	first := ready
	if len(a.ops) > 0 {
		first = a.ops[0]
		first.after = ready
	}
	flush, over := &operation{act: &rma{op: shm.OpFlush, target: shm.AnySource}}, barrier(2)
	over.after = flush
	check := &operation{act: &rma{op: shm.OpWinFree}, after: over}
	if first == ready {
		flush.after = ready
	}
	a.ops = append([]*operation{open, ready}, a.ops...)
	a.ops = append(a.ops, flush, over, check)
}

// checkWindow checks that a rank's part was not written after it was freed.
func (a *app) checkWindow() error {
	part := a.w.parts[a.rank]
	if !part.freed {
		return fmt.Errorf("rank %d has not freed its window", a.rank)
	}
	for i, b := range a.arena[part.at : part.at+len(part.want)] {
		if b != 0xee {
			return fmt.Errorf("rank %d: byte %d of its window was written after it was freed", a.rank, i)
		}
	}
	return nil
}

// compareWindow compares a rank's part with the accesses of all ranks.
func (a *app) compareWindow() error {
	part := a.w.parts[a.rank]
	binary.LittleEndian.PutUint64(part.want, part.count)
	for i := len(part.want) - ledgerBytes; i < len(part.want); i += 8 {
		binary.LittleEndian.PutUint64(part.want[i:], part.turns)
	}
	got := a.arena[part.at : part.at+len(part.want)]
	if i := mismatch(got, part.want); i >= 0 {
		return fmt.Errorf("rank %d: byte %d of its window is %#x, want %#x", a.rank, i, got[i], part.want[i])
	}
	return nil
}

// mismatch returns the index of the first byte in which a and b differ, or -1.
func mismatch(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
