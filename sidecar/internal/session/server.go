package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// Host takes sessions: the engine. Its methods may be called from any
// goroutine.
type Host interface {
	// AttachSession makes s known; an error is the reason for a refusal.
	AttachSession(s *Session) error
	// SessionGone reports that the application's socket ended. The engine
	// frees the session when nothing refers to it any more.
	SessionGone(s *Session)
}

// Config of a Server.
type Config struct {
	Ranks, Pod, Pods uint32
	First, Count     uint32 // world ranks hosted here
	ArenaBytes       uint64 // arena of a client that asks for none
	ArenaMax         uint64 // largest arena granted
	Geometry         segment.Geometry
	EagerBytes       uint64   // told to clients: largest payload worth one slab slot
	UIDs             []uint32 // users that may attach besides this process's own and root
	Log              *slog.Logger
}

// handshakeTime bounds how long a client may take for its Hello.
const handshakeTime = 5 * time.Second

// pendingMax bounds the handshakes under way at once.
const pendingMax = 256

// Server accepts applications on a Unix socket.
type Server struct {
	cfg      Config
	host     Host
	listener *net.UnixListener
	pending  chan struct{}
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[*net.UnixConn]bool
	closed   bool
}

// Listen opens the socket at path. The file is open to everybody who reaches
// its directory: who may attach is decided by peer credentials.
func Listen(path string, cfg Config, host Host) (*Server, error) {
	if len(path) > 107 {
		return nil, fmt.Errorf("session: socket path of %d characters, the system allows 107: %s", len(path), path)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("session: listening on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(fmt.Errorf("session: %w", err), l.Close())
	}
	return &Server{cfg: cfg, host: host, listener: l, pending: make(chan struct{}, pendingMax), conns: map[*net.UnixConn]bool{}}, nil
}

// Serve accepts until ctx ends or Close is called.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() }) // Accept returns its error
	defer stop()
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("session: accepting: %w", err)
		}
		if !s.track(conn) {
			_ = conn.Close() // the server is closing
			continue
		}
		s.pending <- struct{}{}
		s.wg.Go(func() { s.serve(conn) })
	}
}

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // its goroutine reports
	}
	s.mu.Unlock()
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) track(c *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = true
	return true
}

func (s *Server) untrack(c *net.UnixConn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close() // nothing is written on it any more
}

// serve is one client's connection from Hello to its end.
func (s *Server) serve(conn *net.UnixConn) {
	defer s.untrack(conn)
	sess, err := s.handshake(conn)
	<-s.pending
	if err != nil {
		s.cfg.Log.Warn("application refused", "cause", err)
		s.refuse(conn, err)
		return
	}
	// The socket carries nothing more; whatever comes is its end.
	var b [1]byte
	_, err = conn.Read(b[:])
	switch {
	case err == nil:
		s.cfg.Log.Warn("application wrote to its socket after the handshake", "rank", sess.Rank)
	case !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed):
		s.cfg.Log.Debug("application's socket failed", "rank", sess.Rank, "cause", err)
	}
	s.host.SessionGone(sess)
}

func (s *Server) refuse(conn *net.UnixConn, cause error) {
	w := shm.Welcome{ABI: shm.ABIVersion, Features: shm.FeaturesAll, Text: cause.Error()}
	_, _ = conn.Write(w.Encode()) // the client may be gone; the cause is logged
}
