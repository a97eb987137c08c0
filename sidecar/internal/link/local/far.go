package local

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Large operations are offloaded if the sidecar has a channel for that (package copyeng):
// Poll submits their pieces, in turn among the sessions, and reports the ends. They wait in
// queues of their own, so that a small operation does not wait for a channel that is busy.

// offloaded is a large operation. It stays in place while pieces of it are pending.
type offloaded struct {
	operation // done is the offset of the next piece to submit
	copyeng.Transfer
	forgotten bool
}

// SetCopies sets what large operations are offloaded to. Preconditions: none was started.
func (l *Link) SetCopies(c *copyeng.Copies) { l.copies = c }

// start queues an operation of a session.
func (l *Link) start(owner link.Region, op operation) {
	if !l.copies.Takes(op.src.Len) {
		l.ops.Add(owner, op)
		return
	}
	f := new(offloaded)
	f.operation = op
	l.far.Add(owner, f)
}

// moveFar submits pieces, and reports the operations of which all pieces have ended.
func (l *Link) moveFar(sink link.Sink) (work int) {
	work = l.copies.Poll()
	if !l.copies.Alive() {
		return work + l.bringBack() + l.endFar(sink)
	}
	for tries := l.far.Owners() * link.OperationsPerSession; tries > 0 && l.copies.Room(); {
		f := l.turnFar()
		if f == nil {
			break
		}
		if _, failure := f.Failed(); f.reg.ended || failure != nil {
			l.far.EndTurn(false)
			l.flying = append(l.flying, f)
			continue
		}
		n := min(link.PieceMax, f.src.Len-f.done)
		if !l.copies.Submit(&f.Transfer, &f.reg.copies, f.done, l.memory.Bytes(f.dst.Slice(f.done, n)), l.memory.Bytes(f.src.Slice(f.done, n))) {
			l.far.EndTurn(true)
			tries--
			continue
		}
		work++
		f.done += n
		more := f.done < f.src.Len
		l.far.EndTurn(more)
		if !more {
			l.flying = append(l.flying, f)
		}
	}
	return work + l.endFar(sink)
}

func (l *Link) turnFar() *offloaded {
	if f := l.far.Turn(); f != nil {
		return *f
	}
	return nil
}

// bringBack ends the submissions: no channel is left.
func (l *Link) bringBack() (work int) {
	l.far.RemoveFunc(func(f **offloaded) bool {
		l.flying = append(l.flying, *f)
		work++
		return true
	})
	return work
}

// endFar reports the operations that have ended, and continues those inline that a channel
// has not completed.
func (l *Link) endFar(sink link.Sink) (work int) {
	for i := 0; i < len(l.flying); {
		f := l.flying[i]
		if f.Pending() {
			i++
			continue
		}
		l.flying = append(l.flying[:i], l.flying[i+1:]...)
		work++
		if from, failure := f.Failed(); failure != nil {
			f.done = from
		}
		switch {
		case f.forgotten:
			sink.Done(l.self, f.token, errForgotten)
		case f.done == f.src.Len:
			l.report(sink, &f.operation)
		default:
			l.ops.Add(f.owner(), f.operation) // it reports that the registration has ended
		}
		i = 0 // the calls of sink may have changed the list
	}
	return work
}

// owner returns the region of the session that has started an operation.
func (op *operation) owner() link.Region {
	if op.write {
		return op.src.Region
	}
	return op.dst.Region
}

// forgetFar ends the offloaded operations: those with pending pieces after these.
func (l *Link) forgetFar() {
	l.bringBack()
	for _, f := range l.flying {
		f.forgotten = true
	}
}

var errForgotten = fmt.Errorf("%w: forgotten", link.ErrBroken)
