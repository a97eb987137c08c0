package node

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// operation is a read in flight.
type operation struct {
	c     *conn
	token uint64
	dst   link.Ref
	src   link.Ref // in the peer's memory
	key   uint64
	done  uint64
}

// ended is an operation whose end the next Poll reports.
type ended struct {
	peer  link.Peer
	token uint64
}

// Read copies a peer's memory into dst, in the following Polls.
func (l *Link) Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error {
	c := l.conns[peer]
	if c == nil || c.err != nil {
		return fmt.Errorf("%w: no connection to pod %d", link.ErrBroken, peer)
	}
	ref, ok := lookup(c.board, src.Key)
	if !ok {
		return fmt.Errorf("%w: no registration under the key", link.ErrKey)
	}
	ref, err := within(ref, src.Addr, dst.Len)
	if err != nil {
		return err
	}
	op := operation{c: c, token: token, dst: dst, src: ref, key: src.Key}
	if l.cfg.Copies.Takes(dst.Len) {
		l.far.Add(dst.Region, &offloaded{operation: op})
	} else {
		l.ops.Add(dst.Region, op)
	}
	l.stats.Reads++
	return nil
}

// Write returns an error: the link has none (Caps.Write).
func (l *Link) Write(link.Peer, uint64, link.Ref, link.Key, uint64) error {
	return fmt.Errorf("%w: the node link has no remote writes", link.ErrKey)
}

// move copies pieces of the operations in turn.
func (l *Link) move(sink link.Sink) (work int) {
	for budget := pollReads; budget > 0; {
		op := l.ops.Turn()
		if op == nil {
			return work
		}
		n := min(link.PieceMax, op.dst.Len-op.done)
		budget -= max(int(n), link.PieceMax/16)
		here, err := op.copy(l.memory, n)
		switch {
		case err == nil && !here: // the region's descriptor has not arrived yet
			l.ops.EndTurn(true)
			continue
		case err == nil:
			if op.done += n; op.done < op.dst.Len {
				l.ops.EndTurn(true)
				work++
				continue
			}
		}
		work++
		l.stats.BytesRead += op.done
		peer, token := op.c.peer, op.token
		l.ops.EndTurn(false)
		sink.Done(peer, token, err)
	}
	return work
}

// copy copies the next n bytes; here is false if the region's descriptor has not arrived
// yet. Only after the copy it is known whether the registration was valid during it.
func (op *operation) copy(m link.Memory, n uint64) (here bool, err error) {
	r, from, err := op.source(n)
	if r == nil || err != nil {
		return false, err
	}
	if err := r.read(m.Bytes(op.dst.Slice(op.done, n)), from); err != nil {
		return false, link.Broken(err)
	}
	op.c.l.cfg.Copies.Inline(n)
	if err := op.wasValid(); err != nil {
		return false, err
	}
	return true, nil
}

// source returns the location of the next n bytes, or no region if the region's descriptor
// has not arrived yet.
func (op *operation) source(n uint64) (r *region, from uint64, err error) {
	if !valid(op.c.board, op.key) {
		return nil, 0, errEnded
	}
	if r = op.c.regions[op.src.Region]; r == nil {
		op.c.readControls() // most likely its announcement waits in the socket
		return nil, 0, nil
	}
	from = op.src.Off + op.done
	if from < op.src.Off || from > r.size || n > r.size-from {
		return nil, 0, fmt.Errorf("%w: the range ends beyond the peer's memory", link.ErrKey)
	}
	return r, from, nil
}

// wasValid returns an error if the registration has ended before the copies that precede the
// call in the order of the engine's thread.
func (op *operation) wasValid() error {
	op.c.l.order.Add(1) // orders the copy's loads before the load of the board
	if !valid(op.c.board, op.key) {
		return errEnded
	}
	return nil
}

var errEnded = fmt.Errorf("%w: the registration has ended", link.ErrKey)
