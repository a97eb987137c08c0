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
	l.ops.Add(dst.Region, operation{c: c, token: token, dst: dst, src: ref, key: src.Key})
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
	if !valid(op.c.board, op.key) {
		return false, errEnded
	}
	r := op.c.regions[op.src.Region]
	if r == nil {
		op.c.readControls() // most likely its announcement waits in the socket
		return false, nil
	}
	from := op.src.Off + op.done
	if from < op.src.Off || from > r.size || n > r.size-from {
		return false, fmt.Errorf("%w: the range ends beyond the peer's memory", link.ErrKey)
	}
	if err := r.read(m.Bytes(op.dst.Slice(op.done, n)), from); err != nil {
		return false, link.Broken(err)
	}
	op.c.l.order.Add(1) // orders the copy's loads before the load of the board
	if !valid(op.c.board, op.key) {
		return false, errEnded
	}
	return true, nil
}

var errEnded = fmt.Errorf("%w: the registration has ended", link.ErrKey)
