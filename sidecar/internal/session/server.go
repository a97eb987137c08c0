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

// Host attaches sessions: it is the engine. Its methods may be called from any goroutine.
type Host interface {
	// AttachSession attaches s; an error is the reason of a refusal. If the rank has left
	// before, AttachSession waits until the rank may attach again.
	AttachSession(s *Session) error
	// Withdraw makes AttachSession return cause if s waits there.
	Withdraw(s *Session, cause error)
	// SessionGone reports that the application's socket closed. The engine frees the
	// session when nothing refers to it any more.
	SessionGone(s *Session)
	// Expel ends the session of an application that broke the contract in the way that
	// cause describes. Its socket closes then.
	Expel(s *Session, cause error)
}

// Config configures a Server.
type Config struct {
	Ranks, Pod, Pods uint32
	First, Count     uint32 // world ranks of this sidecar
	ArenaBytes       uint64 // arena of a client that requests no size
	ArenaMax         uint64 // largest arena granted
	OwnBytes         uint64 // memory of the sidecar, which no rank may use
	Geometry         segment.Geometry
	EagerBytes       uint64   // sent to clients: largest payload worth one slab slot
	Sharers          uint32   // sent to clients: processes of the job on this machine
	UIDs             []uint32 // users that may attach, in addition to this process's own and root
	AnyUID           bool     // any process that can open the socket may attach
	Refusal          error    // not nil: sent to every client instead of attaching it
	// NoMemory is called for each rank that was not attached for lack of memory, from any
	// goroutine. It may be nil.
	NoMemory func(rank uint32, cause error)
	// Open makes a context on which one client that has the feature registers memory. If it
	// is nil, NotOpen is the reason.
	Open         func() (link.Context, error)
	NotOpen      error
	Log          *slog.Logger
	HelloTimeout time.Duration // how long a client may take to send its Hello; default 5 s
	Pending      int           // most connections that have not sent a Hello; default 256, at most half of them of one user
}

// Defaults of a Config.
const (
	helloTimeoutDefault = 5 * time.Second
	pendingDefault      = memory.SessionSlots
	refusedMax          = memory.RefusedSlots  // most connections of users that may not attach, which have been told why
	placePause          = 5 * time.Millisecond // delay between attempts to admit a connection while no place is free
)

// Server accepts applications on a Unix socket.
type Server struct {
	cfg      Config
	host     Host
	listener *net.UnixListener
	limiter  *admission.Limiter // connections that have not sent a Hello, of users that may attach
	refused  *admission.Limiter // connections of users that may not attach
	memory   *reservations
	wg       sync.WaitGroup

	mu    sync.Mutex // guards what follows
	conns map[*net.UnixConn]bool
	ranks map[uint32]*claim
	// claiming counts the connections that claim a rank and may wait for an earlier claim
	// to end.
	claiming map[uint32]int
	ever     map[uint32]bool // ranks that have been attached
	closed   bool

	shut      atomic.Bool        // the warning that a context could not be opened was logged
	strangers admission.Warnings // about users that may not attach
	mute      admission.Warnings // about clients that sent no Hello
	unfit     admission.Warnings // about other clients
	short     admission.Warnings // about ranks that asked for more arena than there is memory
}

// refusedLine is the log line of an application that is not attached, or is not given
// memory.
const refusedLine = "application refused"

// Listen opens the socket at path and returns its server.
func Listen(path string, cfg Config, host Host) (*Server, error) {
	l, err := Bind(path)
	if err != nil {
		return nil, err
	}
	return NewServer(l, cfg, host), nil
}

// Bind opens the socket at path. Applications may connect from now on; they wait for their
// Welcome until a server serves the socket. The file is open to every process that reaches
// its directory: peer credentials decide which processes may attach.
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

// NewServer returns the server of a socket that Bind has opened. The server closes it.
func NewServer(l *net.UnixListener, cfg Config, host Host) *Server {
	if cfg.HelloTimeout == 0 {
		cfg.HelloTimeout = helloTimeoutDefault
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

// Serve accepts connections until ctx ends or Close is called.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() }) // Accept returns its error
	defer stop()
	for {
		conn, err := admission.Accept(s.listener.AcceptUnix, func(err error) {
			s.cfg.Log.Error("an application could not come in", "cause", err) // attached applications go on
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

// receive decides about a connection by the user that the kernel reports, before anything
// is read. Connections of users that may not attach take no place of the others.
func (s *Server) receive(conn *net.UnixConn) {
	sendAway := func() { _ = conn.CloseRead() } // its goroutine reports it and ends
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
		// All places are held by connections that are about to send their Hello.
		time.Sleep(placePause)
	}
}

// turnAway sends the reason to a client whose user may not attach. It reads the Hello
// first, if it arrives: closing a socket with unread bytes resets the connection, and the
// client would not read the reason. If slot is nil there is no place to wait in, and
// turnAway does not wait.
func (s *Server) turnAway(conn *net.UnixConn, cause error, slot *admission.Slot) {
	defer s.untrack(conn)
	s.strangers.Log(s.cfg.Log, refusedLine, "cause", cause)
	s.refuse(conn, cause)
	if slot == nil {
		return
	}
	defer slot.Release()
	if conn.SetReadDeadline(time.Now().Add(s.cfg.HelloTimeout)) == nil {
		var b [1]byte
		_, _ = conn.Read(b[:]) // the content does not matter
	}
}

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // its goroutine reports the end
	}
	s.mu.Unlock()
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// track makes Close wait for the goroutine of c, until untrack.
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
	_ = c.Close() // nothing more is written to it
	s.wg.Done()
}

// Attached reports whether a rank is attached, or has been.
func (s *Server) Attached(rank uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ever[rank]
}

// serve serves the connection of one client from its Hello to its end.
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

// watch allocates the pieces of the arena that an attached client requests on its socket,
// until the socket closes. A client that sends anything else is expelled, and stays
// connected until it has read the reason. watch reports whether the client closed the
// connection without having read the Welcome: the kernel then reports a reset (unix(7)),
// and the server sends nothing else to a client that has not asked.
func (s *Server) watch(conn *net.UnixConn, sess *Session) (unread bool) {
	b := make([]byte, shm.AskBytes+1)
	for first := true; ; first = false {
		n, err := conn.Read(b)
		if err == nil {
			breach := s.serveAsk(conn, sess, b[:n])
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
	_, _ = conn.Write(w.Encode()) // the client may have gone; the cause is logged
}
