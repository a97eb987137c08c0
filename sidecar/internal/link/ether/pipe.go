package ether

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// pipe is the socket of a connection, which carries payloads that are too large for a
// packet: their bytes alone, in the order of their frames in the packets. Payloads are
// written from their memory, and read into the memory that the core names.
type pipe struct {
	fd      int
	pieces  []piece // payloads to write, oldest first
	first   int     // index of the first one that is not written
	bytes   int     // bytes that are not written
	waiting bool    // the socket accepts no more
	dst     []byte  // rest of the payload that is being read
	in, out uint64  // bytes read and written
	vec     [piecesMax]unix.Iovec
}

// piece is the unwritten part of a frame's payload.
type piece struct {
	mem []byte
	seq uint64 // number of the frame
}

// Limits of the output of a pipe.
const (
	piecesMax = 64
	aheadMax  = 128 << 10 // bytes that wait for the socket, because later frames wait behind them
)

// full reports whether no payload is accepted.
func (p *pipe) full() bool { return p.bytes >= aheadMax || len(p.pieces)-p.first == piecesMax }

func (p *pipe) add(mem []byte, seq uint64) {
	if p.first > 0 && len(p.pieces) == cap(p.pieces) {
		n := copy(p.pieces, p.pieces[p.first:])
		clear(p.pieces[n:])
		p.pieces, p.first = p.pieces[:n], 0
	}
	p.pieces = append(p.pieces, piece{mem, seq})
	p.bytes += len(mem)
}

// pending reports whether output is left.
func (p *pipe) pending() bool { return p.first < len(p.pieces) }

// oldest returns the number of the first frame whose payload is not written, or 0.
func (p *pipe) oldest() uint64 {
	if !p.pending() {
		return 0
	}
	return p.pieces[p.first].seq
}

// flush writes until the socket accepts no more. A pipe that waits is flushed when epoll
// reports room.
func (p *pipe) flush() error {
	for p.pending() {
		n, err := p.write()
		switch {
		case errors.Is(err, unix.EAGAIN):
			p.waiting = true
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("%w: writing: %w", link.ErrBroken, err)
		}
		p.written(n)
	}
	p.waiting = false
	return nil
}

func (p *pipe) written(n int) {
	p.out += uint64(n)
	p.bytes -= n
	for n > 0 {
		x := &p.pieces[p.first]
		if n < len(x.mem) {
			x.mem = x.mem[n:]
			return
		}
		n -= len(x.mem)
		*x = piece{}
		p.first++
	}
	if !p.pending() {
		p.pieces, p.first = p.pieces[:0], 0
	}
}

// callCost is what a read takes off a budget in addition to its bytes: many payloads of a
// byte are work, too.
const callCost = 1 << 10

var errEnd = errors.New("closed by the peer")

// fill reads into dst, at most budget bytes, which it takes off budget. It reports whether
// the payload is complete.
func (p *pipe) fill(budget *int) (whole bool, work int, err error) {
	for len(p.dst) > 0 {
		if *budget <= 0 {
			return false, work + 1, nil
		}
		n, err := p.read(min(len(p.dst), *budget))
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, work, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return false, work, fmt.Errorf("%w: reading: %w", link.ErrBroken, err)
		case n == 0:
			return false, work, fmt.Errorf("%w: reading: %w", link.ErrBroken, errEnd)
		}
		*budget -= n + callCost
		p.in += uint64(n)
		p.dst = p.dst[n:]
		work++
	}
	p.dst = nil
	return true, work, nil
}
