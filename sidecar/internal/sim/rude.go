package sim

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Programs that break the rules of windows: they reach for the windows of others
// whenever they like, also when those are not there yet or not any more, and while
// they are being freed. Nobody's memory may be touched for that after it was freed,
// nor may anybody wait for ever.

const (
	rudeNumber = 10
	rudeBytes  = 12 << 10
)

// rude is an operation on such a window.
type rude struct {
	op     shm.Op
	target uint32
	n      int
	addr   int
}

func (x *rude) describe(a *app) shm.Descriptor {
	d := shm.Descriptor{Op: x.op, Context: rudeNumber, Peer: x.target, Class: shm.ClassArena}
	switch x.op {
	case shm.OpWin:
		a.rude = a.take(rudeBytes)
		d.SetBody(uint64(a.rude), rudeBytes, 0, 0)
	case shm.OpPut, shm.OpGet:
		x.addr = a.take(x.n)
		d.SetBody(uint64(x.addr), uint64(x.n), uint64(rudeBytes-x.n), 0)
	default:
		d.Class = 0
	}
	return d
}

func (x *rude) ended(a *app, d *shm.Descriptor) error {
	if d.Status != shm.StatusOK && (d.Status != shm.StatusInvalid || x.op == shm.OpWin || x.op == shm.OpWinFree) {
		return fmt.Errorf("operation %d on the rude window of rank %d ended with status %d", x.op, x.target, d.Status)
	}
	if x.op == shm.OpWinFree {
		a.freed = true
		fillByte(a.arena[a.rude:a.rude+rudeBytes], 0xee)
	}
	return nil
}

// planRude gives every rank such a window for a part of the job, and accesses to
// those of others at any time.
func (w *world) planRude() {
	w.net.rude = true
	for _, a := range w.apps {
		open := &operation{act: &rude{op: shm.OpWin}}
		free := &operation{act: &rude{op: shm.OpWinFree}, after: open}
		list := []*operation{open}
		for range w.rng.IntN(12) {
			op := []shm.Op{shm.OpPut, shm.OpGet, shm.OpFlush}[w.rng.IntN(3)]
			list = append(list, &operation{act: &rude{op: op, target: uint32(w.rng.IntN(len(w.apps))), n: 1 + w.rng.IntN(rudeBytes)}})
		}
		at := 1 + w.rng.IntN(len(list))
		list = append(list[:at], append([]*operation{free}, list[at:]...)...)
		a.extras = append(a.extras, list...)
	}
}

// checkRude sees that nobody has written to a rank's window since it was freed.
func (a *app) checkRude() error {
	for i, b := range a.arena[a.rude:][:rudeBytes] {
		if a.freed && b != 0xee {
			return fmt.Errorf("rank %d: byte %d of its rude window was written after it was freed", a.rank, i)
		}
	}
	return nil
}
