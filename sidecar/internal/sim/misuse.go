package sim

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Programs that break the rules of windows: they access the windows of others at any time,
// before the windows exist, while they are freed and after that. Freed memory must not be
// accessed for that, and no operation may wait for ever.

const (
	misuseNumber = 10
	misuseBytes  = 12 << 10
)

// misuse is an operation on a misused window.
type misuse struct {
	op     shm.Op
	target uint32
	n      int
	addr   int
}

func (x *misuse) describe(a *app) shm.Descriptor {
	d := shm.Descriptor{Op: x.op, Context: misuseNumber, Peer: x.target, Class: shm.ClassArena}
	switch x.op {
	case shm.OpWin:
		a.misuse = a.alloc(misuseBytes)
		d.SetBody(uint64(a.misuse), misuseBytes, 0, 0)
	case shm.OpPut, shm.OpGet:
		x.addr = a.alloc(x.n)
		d.SetBody(uint64(x.addr), uint64(x.n), uint64(misuseBytes-x.n), 0)
	default:
		d.Class = 0
	}
	return d
}

func (x *misuse) ended(a *app, d *shm.Descriptor) error {
	if d.Status != shm.StatusOK && (d.Status != shm.StatusInvalid || x.op == shm.OpWin || x.op == shm.OpWinFree) {
		return fmt.Errorf("operation %d on the misused window of rank %d ended with status %d", x.op, x.target, d.Status)
	}
	if x.op == shm.OpWinFree {
		a.freed = true
		fillByte(a.arena[a.misuse:a.misuse+misuseBytes], 0xee)
	}
	return nil
}

// planMisuse gives every rank a window for a part of the job, and accesses to the windows of
// others at any time.
func (w *world) planMisuse() {
	w.net.misuse = true
	for _, a := range w.apps {
		open := &operation{act: &misuse{op: shm.OpWin}}
		free := &operation{act: &misuse{op: shm.OpWinFree}, after: open}
		list := []*operation{open}
		for range w.rng.IntN(12) {
			op := []shm.Op{shm.OpPut, shm.OpGet, shm.OpFlush}[w.rng.IntN(3)]
			list = append(list, &operation{act: &misuse{op: op, target: uint32(w.rng.IntN(len(w.apps))), n: 1 + w.rng.IntN(misuseBytes)}})
		}
		at := 1 + w.rng.IntN(len(list))
		list = append(list[:at], append([]*operation{free}, list[at:]...)...)
		a.extras = append(a.extras, list...)
	}
}

// checkMisuse checks that a rank's window was not written after it was freed.
func (a *app) checkMisuse() error {
	for i, b := range a.arena[a.misuse:][:misuseBytes] {
		if a.freed && b != 0xee {
			return fmt.Errorf("rank %d: byte %d of its misused window was written after it was freed", a.rank, i)
		}
	}
	return nil
}
