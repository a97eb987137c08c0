package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// windowNumber names the one window of a job. Each rank's part is a counter and
// then a slot for every rank, to which only that one writes.
const (
	windowNumber = 9
	counterBytes = 64
	slotBytes    = 32 << 10
)

// exposed is what a rank's part of the window must be in the end.
type exposed struct {
	at    int // in the arena
	want  []byte
	count uint64
	used  []int // bytes of each slot that are taken
}

// rma is an operation on the window.
type rma struct {
	op     shm.Op
	target uint32
	off, n int
	addr   int
	data   []byte // what is put, or must be got
	add    uint64
}

func (x *rma) describe(a *app) shm.Descriptor {
	d := shm.Descriptor{Op: x.op, Context: windowNumber, Peer: x.target, Class: shm.ClassArena}
	switch x.op {
	case shm.OpWin:
		w := a.w.parts[a.rank]
		w.at = a.take(len(w.want))
		d.SetBody(uint64(w.at), uint64(len(w.want)), 0, 0)
	case shm.OpPut, shm.OpGet:
		x.addr = a.take(x.n)
		if x.op == shm.OpPut {
			copy(a.arena[x.addr:], x.data)
		}
		d.SetBody(uint64(x.addr), uint64(x.n), uint64(x.off), 0)
	case shm.OpAcc:
		x.addr = a.take(8)
		binary.LittleEndian.PutUint64(a.arena[x.addr:], x.add)
		d.Tag = uint64(shm.TypeUint64)<<8 | uint64(shm.ReduceSum)
		d.SetBody(uint64(x.addr), 8, 0, 0)
	default: // flush and free name no memory
		d.Class = 0
	}
	return d
}

func (x *rma) ended(a *app, d *shm.Descriptor) error {
	if d.Status != shm.StatusOK {
		return fmt.Errorf("operation %d on the window of rank %d ended with status %d", x.op, x.target, d.Status)
	}
	switch x.op {
	case shm.OpGet:
		if !bytes.Equal(a.arena[x.addr:x.addr+x.n], x.data) {
			return fmt.Errorf("%d bytes got from rank %d at %d are not those that were put", x.n, x.target, x.off)
		}
	case shm.OpPut:
		fillByte(a.arena[x.addr:x.addr+x.n], 0xee) // the memory is the application's again
	}
	return nil
}

// planWindow gives every rank its accesses: puts that nobody else overwrites,
// each read back once it is flushed, and additions to counters of others.
func (w *world) planWindow() {
	ranks := len(w.podOf)
	for range ranks {
		w.parts = append(w.parts, &exposed{want: make([]byte, counterBytes+ranks*slotBytes), used: make([]int, ranks)})
	}
	for _, a := range w.apps {
		for range w.rng.IntN(8) {
			t := uint32(w.rng.IntN(ranks))
			part := w.parts[t]
			n := 1 + w.rng.IntN(6000)
			if part.used[a.rank]+n > slotBytes {
				continue
			}
			off := counterBytes + int(a.rank)*slotBytes + part.used[a.rank]
			part.used[a.rank] += n
			data := content(a.rank, t, 0xaaaa, off, n)
			copy(part.want[off:], data)
			put := &operation{act: &rma{op: shm.OpPut, target: t, off: off, n: n, data: data}}
			flush := &operation{act: &rma{op: shm.OpFlush, target: t}, after: put}
			get := &operation{act: &rma{op: shm.OpGet, target: t, off: off, n: n, data: data}, after: flush}
			add := 1 + w.rng.Uint64N(1000)
			part.count += add
			acc := &operation{act: &rma{op: shm.OpAcc, target: t, add: add}}
			a.extras = append(a.extras, acc, put, flush, get)
		}
	}
}

// wrapWindow puts the making of the window before everything else, and its end
// after.
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

// checkWindow compares a rank's part with what all have written to it.
func (a *app) checkWindow() error {
	part := a.w.parts[a.rank]
	binary.LittleEndian.PutUint64(part.want, part.count)
	got := a.arena[part.at : part.at+len(part.want)]
	if i := mismatch(got, part.want); i >= 0 {
		return fmt.Errorf("rank %d: byte %d of its window is %#x, want %#x", a.rank, i, got[i], part.want[i])
	}
	return nil
}

// mismatch finds the first byte in which a and b differ.
func mismatch(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
