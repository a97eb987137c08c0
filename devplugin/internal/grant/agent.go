package grant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// Bounds (PROTOCOL.md §5).
const (
	connectionsMax    = 512
	connectionsPerPod = 16
)

// identifyPatience is how long the runtime and the kubelet may take to say who
// a caller is.
const identifyPatience = 10 * time.Second

// Identifier tells who a process is; an error refuses it.
type Identifier interface {
	Identify(ctx context.Context, pid int) (*Caller, error)
}

// Limiter raises a process's limit of locked memory and gives the one that
// holds then.
type Limiter interface {
	Raise(pid int, bytes uint64) (uint64, error)
}

// Config is what an agent needs.
type Config struct {
	// Socket is the path to listen on. The directory is mounted into sidecars.
	Socket  string
	Who     Identifier
	Limiter Limiter
	// MemlockMax bounds a limit, in bytes.
	MemlockMax uint64
	Log        *slog.Logger
}

// Agent answers sidecars.
type Agent struct {
	config   Config
	listener *net.UnixListener
	broker   broker
	open     atomic.Int64
	granted  atomic.Uint64
	refused  atomic.Uint64
	wg       sync.WaitGroup
}

// Listen makes an agent. Everyone may connect to its socket: who may ask is
// decided by who they are, and a sidecar's user is anyone's choice.
func Listen(c Config) (*Agent, error) {
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(c.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: c.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("the grant socket: %w", err)
	}
	if err := os.Chmod(c.Socket, 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Agent{config: c, listener: l, broker: broker{members: map[member]*seat{}, pods: map[string]int{}}}, nil
}

// Counts says how many requests were granted, and how many callers and
// requests were refused.
func (a *Agent) Counts() (granted, refused uint64) { return a.granted.Load(), a.refused.Load() }

// Serve answers until the context ends.
func (a *Agent) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer a.wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = a.listener.Close() }) // Accept says so
	defer stop()
	for {
		conn, err := a.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the grant socket: %w", err)
		}
		if a.open.Add(1) > connectionsMax {
			a.open.Add(-1)
			a.config.Log.Warn("too many connections; one is closed", "bound", connectionsMax)
			_ = conn.Close() // the caller sees the end
			continue
		}
		a.wg.Go(func() {
			defer a.open.Add(-1)
			a.attend(ctx, conn)
		})
	}
}

// attend answers one connection.
func (a *Agent) attend(ctx context.Context, conn *net.UnixConn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // Receive says so
	defer stop()
	defer conn.Close()
	s := &session{agent: a, conn: conn}
	err := s.identify(ctx)
	if s.process != nil {
		defer s.process.close()
	}
	if err != nil {
		a.refused.Add(1)
		a.config.Log.Warn("a caller was refused", "cause", err)
		s.turnAway(err)
		return
	}
	defer s.leave()
	if !a.broker.enter(s.caller) {
		a.refused.Add(1)
		s.turnAway(fmt.Errorf("more than %d connections of one pod", connectionsPerPod))
		return
	}
	defer a.broker.exit(s.caller)
	for {
		m, f, err := grant.Receive(conn)
		if f != nil {
			_ = f.Close() // no request has a descriptor
		}
		switch {
		case errors.Is(err, grant.ErrMessage):
			a.refused.Add(1)
			_ = grant.Send(conn, &grant.Message{Version: grant.Version, Op: grant.Memlock, Error: err.Error()}, nil) // as below
			return
		case err != nil:
			return // the caller has gone, or the agent ends
		}
		if err := s.answer(m); err != nil {
			return // as above
		}
	}
}
