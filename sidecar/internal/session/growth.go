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

// shortagePause delays the answer that there is no memory. A client that asks without end
// costs the sidecar no more than this many looks at the machine's memory.
const shortagePause = 10 * time.Millisecond

// growth is an arena that is allocated in pieces. It belongs to the goroutine of its
// client's connection: the engine need not be awake.
type growth struct {
	pieces   *Pieces
	seals    *seals   // that are added before anything is allocated
	size     uint64   // of the arena
	fd       int      // of the arena
	promised *promise // of the session, to which pieces are added
	first    uint64   // bytes that are still kept for its first piece
}

// end gives up what is kept.
func (g *growth) end() {
	if g == nil {
		return
	}
	g.promised.r.arrive(uint64(memory.Piece(int64(g.first))))
	_ = unix.Close(g.fd) // the mappings stay
}

// asked serves one message of a client that is attached. An error is its breach of the
// contract.
func (s *Server) asked(conn *net.UnixConn, sess *Session, raw []byte) error {
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
		g.pieces.add(a.Off, done) // before the client hears of it
	}
	if cause != nil {
		cause = fmt.Errorf("rank %d asks for %s more of its arena: %w", sess.Rank, memory.Text(a.Bytes), cause)
		answer.Text = cause.Error()
		s.short.Log(s.cfg.Log, refusedLine, "cause", cause)
		time.Sleep(shortagePause)
	}
	if err := conn.SetWriteDeadline(time.Now().Add(s.cfg.Patience)); err != nil {
		return fmt.Errorf("rank %d: %w", sess.Rank, err)
	}
	if _, err := conn.Write(answer.Encode()); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("rank %d asks for pieces of its arena, and has not read an answer for %v", sess.Rank, s.cfg.Patience)
	}
	return nil // the end of the socket is read next
}

// allocate reserves a piece on the sidecar's account: done bytes of it, and the reason if
// they are not all.
func (g *growth) allocate(a shm.Ask) (done uint64, err error) {
	r := g.promised.r
	kept := min(g.first, a.Bytes)
	r.arrive(uint64(memory.Piece(int64(kept))))
	g.first -= kept
	p, err := r.promise(uint64(memory.Piece(int64(a.Bytes))), kept < a.Bytes)
	if err != nil {
		g.first += kept
		r.keep(uint64(memory.Piece(int64(kept))))
		return 0, err
	}
	n, err := segment.Allocate(g.fd, int64(a.Off), int64(a.Bytes))
	p.settle()
	p.shrink(uint64(memory.Piece(n)))
	g.promised.join(p)
	return uint64(n), err
}
