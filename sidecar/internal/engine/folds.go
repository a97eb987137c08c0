package engine

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// folds are the ranges that collectives combine outside of the turns, in pieces, by channels
// of Copies. It implements core.Folder.
type folds struct {
	engine  *Engine
	waiting queue.Fair[uint32, *fold] // they have pieces to submit; by rank
	flying  []*fold                   // all of their pieces are submitted, or one has failed
	all     map[uint64]*fold          // by collective
}

// inlineBytes bounds the bytes that a turn combines if there is no channel any more: as many
// as the core does.
const inlineBytes = 128 << 10

// fold is one of them. It stays in place while pieces of it are pending.
type fold struct {
	copyeng.Transfer
	memory   copyeng.Hold
	id       uint64 // of the collective
	do       copyeng.Work
	dst, src link.Ref
	at       uint64 // offset of the next piece
	over     bool   // its collective has ended
}

// Fold begins a fold, if it is large and there are channels that combine.
func (x *folds) Fold(rank uint32, id uint64, op coll.Op, typ coll.Type, dst, src link.Ref) bool {
	if !x.engine.cfg.Copies.TakesWork(dst.Len) {
		return false
	}
	do := func(dst, src []byte) error { return coll.Apply(op, typ, dst, src) }
	f := &fold{id: id, do: do, dst: dst, src: src}
	if x.all == nil {
		x.all = map[uint64]*fold{}
	}
	x.all[id] = f
	x.waiting.Add(rank, f)
	return true
}

// poll submits pieces, one of each rank in turn, and reports the folds that have ended.
func (x *folds) poll() (work int) {
	if len(x.all) == 0 && x.waiting.Empty() {
		return 0
	}
	copies := x.engine.cfg.Copies
	work = copies.Poll()
	inline := inlineBytes // if there is no channel any more
	for tries := x.waiting.Owners(); tries > 0 && !x.waiting.Empty() && (copies.Room() || !copies.Alive()); {
		f := *x.waiting.Turn()
		_, failed := f.Failed()
		switch {
		case f.over:
			x.waiting.EndTurn(false)
		case failed != nil:
			x.waiting.EndTurn(false)
			x.flying = append(x.flying, f)
		case x.submit(f, &inline):
			work++
			more := f.at < f.dst.Len
			x.waiting.EndTurn(more)
			if !more {
				x.flying = append(x.flying, f)
			}
		default:
			x.waiting.EndTurn(true)
			tries--
		}
	}
	for i := 0; i < len(x.flying); {
		f := x.flying[i]
		if !f.over && f.Pending() {
			i++
			continue
		}
		last := len(x.flying) - 1
		x.flying[i], x.flying[last] = x.flying[last], nil
		x.flying = x.flying[:last]
		work++
		if _, failed := f.Failed(); !f.over {
			delete(x.all, f.id)
			x.engine.core.Folded(x.engine.now, f.id, failed != nil)
		}
	}
	return work
}

// submit starts the next piece of a fold, if there is room for it. After a failure there is no
// next one: a piece that has failed may be combined in part, so that it cannot be combined
// again, and the collective fails.
func (x *folds) submit(f *fold, inline *int) bool {
	n := min(link.PieceMax, f.dst.Len-f.at)
	e := x.engine
	dst, src := e.Bytes(f.dst.Slice(f.at, n)), e.Bytes(f.src.Slice(f.at, n))
	switch {
	case e.cfg.Copies.Work(&f.Transfer, &f.memory, f.at, f.do, dst, src):
	case !e.cfg.Copies.Alive() && !f.Pending() && *inline > 0:
		_ = f.do(dst, src) // the same call was valid for the channel
		*inline -= int(n)
	default:
		return false
	}
	f.at += n
	return true
}

// unfinished reports whether a fold waits for a turn, and not for a channel.
func (x *folds) unfinished() bool { return len(x.all) > 0 && !x.engine.cfg.Copies.Pending() }

// Await ends the fold of a collective.
func (x *folds) Await(id uint64) {
	if f := x.all[id]; f != nil {
		x.engine.cfg.Copies.Wait(&f.memory)
		f.over = true
		delete(x.all, id)
	}
}
