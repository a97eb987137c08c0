package session

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// shortagePause delays the answer to a client that there is no memory, so that a client
// that asks without end costs the sidecar at most 100 checks of the machine's memory a
// second.
const shortagePause = 10 * time.Millisecond

// growth allocates an arena in pieces. It belongs to the goroutine that serves the client's
// connection, so that a piece is allocated while the engine sleeps.
type growth struct {
	pieces   *Pieces
	seals    *seals   // seals of the arena, which are added before the first piece is allocated
	size     uint64   // size of the arena, in bytes
	fd       int      // descriptor of the arena
	promised *promise // the session's promise, to which the pieces are added
	first    uint64   // bytes that are still reserved for the arena's first piece
}

// end releases the reservation for the first piece.
func (g *growth) end() {
	if g == nil {
		return
	}
	g.promised.r.arrive(uint64(memory.Piece(int64(g.first))))
	_ = unix.Close(g.fd) // the mappings stay
}

// serveAsk serves one message of a client that is attached. An error means that the client
// broke the contract.
func (s *Server) serveAsk(conn *net.UnixConn, sess *Session, raw []byte) error {
	g := sess.growth
	a, err := shm.DecodeAsk(raw)
	if err != nil || g == nil {
		return fmt.Errorf("rank %d: bytes on its socket after the handshake", sess.Rank)
	}
	if err := g.pieces.check(a, g.size); err != nil {
		return fmt.Errorf("rank %d: %w", sess.Rank, err)
	}
	answer := shm.Answer{Off: a.Off}
	if err := g.seals.add(); err != nil {
		return fmt.Errorf("rank %d: %w", sess.Rank, err)
	}
	done, cause := g.allocate(a)
	if answer.Bytes = done; done > 0 {
		g.pieces.add(a.Off, done) // before the client learns of it
	}
	if cause != nil {
		cause = fmt.Errorf("rank %d asks for %s more of its arena: %w", sess.Rank, memory.Text(a.Bytes), cause)
		answer.Text = cause.Error()
		s.short.Log(s.cfg.Log, refusedLine, "cause", cause)
		time.Sleep(shortagePause)
	}
	if err := conn.SetWriteDeadline(time.Now().Add(s.cfg.HelloTimeout)); err != nil {
		return fmt.Errorf("rank %d: %w", sess.Rank, err)
	}
	if _, err := conn.Write(answer.Encode()); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("rank %d asks for pieces of its arena, and has not read an answer for %v", sess.Rank, s.cfg.HelloTimeout)
	}
	return nil // if the socket has ended, the next read reports it
}

// allocate reserves a piece of the arena and charges it to the sidecar. It returns how many
// bytes were reserved, and the reason if they are fewer than requested.
func (g *growth) allocate(a shm.Ask) (done uint64, err error) {
	r := g.promised.r
	kept := min(g.first, a.Bytes)
	r.arrive(uint64(memory.Piece(int64(kept))))
	g.first -= kept
	p, err := r.promise(uint64(memory.Piece(int64(a.Bytes))), kept < a.Bytes)
	if err != nil {
		g.first += kept
		r.reserve(uint64(memory.Piece(int64(kept))))
		return 0, err
	}
	n, err := segment.Allocate(g.fd, int64(a.Off), int64(a.Bytes))
	p.settle()
	p.shrink(uint64(memory.Piece(n)))
	g.promised.join(p)
	return uint64(n), err
}
