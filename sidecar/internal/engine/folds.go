package engine

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// folds are the ranges that collectives combine outside of the turns, in pieces, by channels
// of Copies. It implements core.Folder.
type folds struct {
	engine *Engine
	list   []*fold
	first  int // poll begins with list[first % len(list)]
}

// fold is one of them. It stays in place while pieces of it are pending.
type fold struct {
	copyeng.Transfer
	memory   copyeng.Hold
	id       uint64 // of the collective
	do       copyeng.Work
	dst, src link.Ref
	at       uint64 // offset of the next piece
}

// Fold begins a fold, if it is large and there are channels that combine.
func (x *folds) Fold(id uint64, op coll.Op, typ coll.Type, dst, src link.Ref) bool {
	if !x.engine.cfg.Copies.TakesWork(dst.Len) {
		return false
	}
	do := func(dst, src []byte) error { return coll.Apply(op, typ, dst, src) }
	x.list = append(x.list, &fold{id: id, do: do, dst: dst, src: src})
	return true
}

// poll submits pieces, one of each fold in turn, and reports the folds that have ended.
func (x *folds) poll() (work int) {
	if len(x.list) == 0 {
		return 0
	}
	copies := x.engine.cfg.Copies
	work = copies.Poll()
	x.first++
	for idle := 0; idle < len(x.list); x.first++ {
		if x.submit(x.list[x.first%len(x.list)]) {
			idle, work = 0, work+1
		} else {
			idle++
		}
	}
	for i := 0; i < len(x.list); i++ {
		f := x.list[i]
		_, failed := f.Failed()
		if f.Pending() || failed == nil && f.at < f.dst.Len {
			continue
		}
		x.list = append(x.list[:i], x.list[i+1:]...)
		i--
		work++
		x.engine.core.Folded(x.engine.now, f.id, failed != nil)
	}
	return work
}

// submit starts the next piece of a fold, if there is one and room for it. After a failure
// there is none: a piece that has failed may be combined in part, so that it cannot be
// combined again, and the collective fails.
func (x *folds) submit(f *fold) bool {
	n := min(link.PieceMax, f.dst.Len-f.at)
	if _, failed := f.Failed(); failed != nil || n == 0 {
		return false
	}
	e := x.engine
	dst, src := e.Bytes(f.dst.Slice(f.at, n)), e.Bytes(f.src.Slice(f.at, n))
	switch {
	case e.cfg.Copies.Work(&f.Transfer, &f.memory, f.at, f.do, dst, src):
	case !e.cfg.Copies.Alive() && !f.Pending():
		_ = f.do(dst, src) // the same call was valid for the channel
	default:
		return false
	}
	f.at += n
	return true
}

// unfinished reports whether a fold waits for a turn, and not for a channel.
func (x *folds) unfinished() bool {
	for _, f := range x.list {
		if !f.Pending() && !x.engine.cfg.Copies.Pending() {
			return true
		}
	}
	return false
}

// Await ends the fold of a collective.
func (x *folds) Await(id uint64) {
	for i, f := range x.list {
		if f.id == id {
			x.engine.cfg.Copies.Wait(&f.memory)
			x.list = append(x.list[:i], x.list[i+1:]...)
			return
		}
	}
}
