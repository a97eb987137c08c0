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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Host takes sessions: the engine. Its methods may be called from any
// goroutine.
type Host interface {
	// AttachSession makes s known; an error is the reason for a refusal. If the rank has
	// left before, it waits until the rank may attach again.
	AttachSession(s *Session) error
	// Withdraw has AttachSession return cause, if s waits there.
	Withdraw(s *Session, cause error)
	// SessionGone reports that the application's socket ended. The engine
	// frees the session when nothing refers to it any more.
	SessionGone(s *Session)
	// Expel ends the session of an application that broke the contract, as cause
	// says. Its socket ends then.
	Expel(s *Session, cause error)
}

// Config of a Server.
type Config struct {
	Ranks, Pod, Pods uint32
	First, Count     uint32 // world ranks hosted here
	ArenaBytes       uint64 // arena of a client that asks for none
	ArenaMax         uint64 // largest arena granted
	OwnBytes         uint64 // memory of the sidecar that no rank may have
	Geometry         segment.Geometry
	EagerBytes       uint64   // told to clients: largest payload worth one slab slot
	Sharers          uint32   // told to clients: processes of the job on this machine
	UIDs             []uint32 // users that may attach besides this process's own and root
	AnyUID           bool     // whoever reaches the socket may attach
	Refusal          error    // not nil: what every client is told instead of being attached
	// NoMemory is told of each rank that is not attached for want of memory; nil:
	// nobody is. It may be called from any goroutine.
	NoMemory func(rank uint32, cause error)
	// Open makes a context for one client that has the feature, for it to register memory
	// on; nil: NotOpen says why there is none.
	Open     func() (link.Context, error)
	NotOpen  error
	Log      *slog.Logger
	Patience time.Duration // how long a client may take for its Hello; default 5 s
	Pending  int           // connections that have not said Hello, at once; default 256, half of them of one user
}

// Defaults of a Config.
const (
	patienceDefault = 5 * time.Second
	pendingDefault  = memory.SessionPlaces
	refusedMax      = memory.RefusedPlaces // users that may not attach and have been told, at once
	placePause      = 5 * time.Millisecond // for a place to become free
)

// Server accepts applications on a Unix socket.
type Server struct {
	cfg      Config
	host     Host
	listener *net.UnixListener
	limiter  *admission.Limiter // of those who may attach
	refused  *admission.Limiter // of the others
	memory   *reservations
	wg       sync.WaitGroup

	mu    sync.Mutex // guards what follows
	conns map[*net.UnixConn]bool
	ranks map[uint32]*claim
	// claiming are the connections that want the place of a rank, which may wait for it.
	claiming map[uint32]int
	ever     map[uint32]bool // have been attached
	closed   bool

	shut      atomic.Bool        // a context could not be opened, and that was said
	strangers admission.Warnings // users that may not attach
	mute      admission.Warnings // about clients that sent no Hello
	unfit     admission.Warnings // about other clients
	short     admission.Warnings // about ranks that asked for more arena than there is memory
}

// refusedLine is the log line of an application that is not attached, or not given memory.
const refusedLine = "application refused"

// Listen opens the socket at path, for a server of its own.
func Listen(path string, cfg Config, host Host) (*Server, error) {
	l, err := Bind(path)
	if err != nil {
		return nil, err
	}
	return NewServer(l, cfg, host), nil
}

// Bind opens the socket at path, where applications may connect from now on; those that do
// wait for their Welcome until a server serves it. The file is open to every process that
// reaches its directory: peer credentials decide which of them may attach.
func Bind(path string) (*net.UnixListener, error) {
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
	return l, nil
}

// NewServer makes the server of a socket that Bind has opened, and which it closes.
func NewServer(l *net.UnixListener, cfg Config, host Host) *Server {
	if cfg.Patience == 0 {
		cfg.Patience = patienceDefault
	}
	if cfg.Pending == 0 {
		cfg.Pending = pendingDefault
	}
	return &Server{
		cfg: cfg, host: host, listener: l, memory: newReservations(cfg.OwnBytes, uint64(cfg.Count)*uint64(cfg.sizes(cfg.ArenaBytes).Rank()), machineMemory),
		conns: map[*net.UnixConn]bool{}, ranks: map[uint32]*claim{}, claiming: map[uint32]int{}, ever: map[uint32]bool{},
		limiter: admission.New(cfg.Pending, (cfg.Pending+1)/2), refused: admission.New(refusedMax, refusedMax),
	}
}

// Serve accepts until ctx ends or Close is called.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() }) // Accept returns its error
	defer stop()
	for {
		conn, err := admission.Accept(s.listener.AcceptUnix, func(err error) {
			s.cfg.Log.Error("an application could not come in", "cause", err) // those that are attached go on
		})
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		default:
			return fmt.Errorf("session: accepting: %w", err)
		}
		if !s.track(conn) {
			_ = conn.Close() // the server is closing
			continue
		}
		s.receive(conn)
	}
}

// receive judges who has connected, before anything is read: the system knows
// the user. Those who may not attach take no place of those who may.
func (s *Server) receive(conn *net.UnixConn) {
	sendAway := func() { _ = conn.CloseRead() } // its goroutine says so, and ends
	who, err := admission.Credentials(conn)
	if err == nil {
		err = s.cfg.checkUser(who.Uid, os.Geteuid())
	}
	if err != nil {
		go s.turnAway(conn, err, s.refused.Admit("", sendAway))
		return
	}
	for {
		if slot := s.limiter.Admit(fmt.Sprint(who.Uid), sendAway); slot != nil {
			go s.serve(conn, slot)
			return
		}
		// All have only just come, and are about to speak.
		time.Sleep(placePause)
	}
}

// turnAway tells a user that may not attach why. Its Hello is taken first, if it
// comes: a socket that is closed with unread bytes tells the other end of a reset,
// and not of the refusal's reason. A nil slot has no place to wait for that.
func (s *Server) turnAway(conn *net.UnixConn, cause error, slot *admission.Slot) {
	defer s.untrack(conn)
	s.strangers.Log(s.cfg.Log, refusedLine, "cause", cause)
	s.refuse(conn, cause)
	if slot == nil {
		return
	}
	defer slot.Release()
	if conn.SetReadDeadline(time.Now().Add(s.cfg.Patience)) == nil {
		var b [1]byte
		_, _ = conn.Read(b[:]) // whatever it is
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

// track makes Close wait for the goroutine of c, which untrack ends.
func (s *Server) track(c *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = true
	s.wg.Add(1)
	return true
}

func (s *Server) untrack(c *net.UnixConn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close() // nothing is written on it any more
	s.wg.Done()
}

// Attached reports whether a rank is attached, or has been.
func (s *Server) Attached(rank uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ever[rank]
}

// serve is one client's connection from Hello to its end.
func (s *Server) serve(conn *net.UnixConn, slot *admission.Slot) {
	defer s.untrack(conn)
	sess, err := s.handshake(conn, slot)
	if err != nil {
		slot.Release()
		kind := &s.unfit
		if errors.Is(err, errNoHello) {
			kind = &s.mute
		}
		kind.Log(s.cfg.Log, refusedLine, "cause", err)
		s.refuse(conn, err)
		return
	}
	sess.unopened = s.watch(conn, sess)
	sess.growth.end()
	s.host.SessionGone(sess)
	s.unclaim(sess.Rank)
}

// watch gives an attached client the pieces of its arena that it asks for on its socket,
// until that ends. A client that writes anything else to it is expelled, and hung up on when
// it can read why. It reports that the client has ended the connection with the Welcome unread:
// the system tells that of a reset (unix(7)), and nothing else is sent to a client that has not
// asked.
func (s *Server) watch(conn *net.UnixConn, sess *Session) (unread bool) {
	b := make([]byte, shm.AskBytes+1)
	for first := true; ; first = false {
		n, err := conn.Read(b)
		if err == nil {
			breach := s.asked(conn, sess, b[:n])
			if breach == nil {
				continue
			}
			s.host.Expel(sess, breach)
			_, err = io.Copy(io.Discard, conn)
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			s.cfg.Log.Debug("application's socket failed", "rank", sess.Rank, "cause", err)
		}
		return first && errors.Is(err, unix.ECONNRESET)
	}
}

func (s *Server) refuse(conn *net.UnixConn, cause error) {
	w := shm.Welcome{ABI: shm.ABIVersion, Features: shm.FeaturesAll, Text: cause.Error()}
	_, _ = conn.Write(w.Encode()) // the client may be gone; the cause is logged
}
