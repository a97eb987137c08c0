package node

import (
	"errors"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Large reads are offloaded if the sidecar has a channel for that (package copyeng). Pieces
// of which pages are known are submitted; the others are read by system calls, as inline
// (peermemory.go). The end of a read, and of its connection, waits for its pieces.

// offloaded is a large read. It stays in place while pieces of it are pending.
type offloaded struct {
	operation // done is the offset of the next piece to submit
	copyeng.Transfer
	from *region // of the pieces; nil: none was submitted yet
	err  error   // why the rest is not copied
}

// moveFar submits pieces, and reports the reads of which all pieces have ended.
func (l *Link) moveFar(sink link.Sink) (work int) {
	work = l.cfg.Copies.Poll()
	if !l.cfg.Copies.Alive() {
		return work + l.bringBack() + l.endFar(sink)
	}
	budget := pollReads
	for tries := l.far.Owners() * link.OperationsPerSession; tries > 0 && budget > 0 && l.cfg.Copies.Room(); {
		turn := l.far.Turn()
		if turn == nil {
			break
		}
		f := *turn
		here, called := f.submit(l)
		if called > 0 {
			budget -= called
			work++
		}
		if !here {
			tries--
		}
		_, failure := f.Failed()
		more := f.err == nil && failure == nil && f.done < f.dst.Len
		l.far.EndTurn(more)
		if !more {
			l.flying = append(l.flying, f)
		}
	}
	return work + l.endFar(sink)
}

// submit submits the next piece of f. It returns false if the channel is full or the
// region's descriptor has not arrived yet; called is the number of bytes that it has read
// itself, by a system call.
func (f *offloaded) submit(l *Link) (here bool, called int) {
	if _, failure := f.Failed(); failure != nil {
		return true, 0
	}
	n := min(link.PieceMax, f.dst.Len-f.done)
	r, from, err := f.source(n)
	if r == nil || err != nil {
		f.err = err
		return err != nil, 0
	}
	dst := l.memory.Bytes(f.dst.Slice(f.done, n))
	if r.mapped(from, n) {
		if !l.cfg.Copies.Submit(&f.Transfer, &r.copies, f.done, dst, r.mem[from:from+n]) {
			return false, 0
		}
		f.from = r
	} else if err := r.call(dst, from); err != nil {
		f.err = link.Broken(err)
		return true, 0
	} else {
		l.cfg.Copies.Inline(n)
		called = max(int(n), link.PieceMax/16)
	}
	f.done += n
	return true, called
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

// endFar reports the reads that have ended, and continues those inline that a channel has
// not completed.
func (l *Link) endFar(sink link.Sink) (work int) {
	for i := 0; i < len(l.flying); {
		f := l.flying[i]
		if f.Pending() {
			i++
			continue
		}
		l.flying = append(l.flying[:i], l.flying[i+1:]...)
		work++
		if from, failure := f.Failed(); failure != nil && f.err == nil {
			// The engine's thread must not access what a helper could not: the system call
			// does, and reports an error.
			f.done, f.from.faulty = from, errors.Is(failure, copyeng.ErrFault)
		}
		if f.err == nil && f.done < f.dst.Len {
			l.ops.Add(f.dst.Region, f.operation)
			i = 0
			continue
		}
		if f.err == nil {
			f.err = f.wasValid()
		}
		l.stats.BytesRead += f.done
		sink.Done(f.c.peer, f.token, f.err)
		i = 0 // the calls of sink may have changed the list
	}
	return work
}

// dropFar removes the reads of a connection that is closed, and calls end for each. The
// close has waited for their pieces.
func (l *Link) dropFar(c *conn, end func(*operation)) {
	remove := func(f *offloaded) bool {
		if f.c == c {
			end(&f.operation)
		}
		return f.c == c
	}
	l.far.RemoveFunc(func(f **offloaded) bool { return remove(*f) })
	kept := l.flying[:0]
	for _, f := range l.flying {
		if !remove(f) {
			kept = append(kept, f)
		}
	}
	clear(l.flying[len(kept):])
	l.flying = kept
}
