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
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// Bounds (PROTOCOL.md §5).
const (
	connectionsMax    = 512
	connectionsPerPod = 16
	// identifyMax is how many callers are identified at once: each costs the runtime
	// and the kubelet a list, and every process of the node may call.
	identifyMax = 8
	// The share of the processes of one pod in both bounds before they are identified,
	// so that a pod that calls without end does not block the others.
	originMax         = 2 * connectionsPerPod
	originIdentifyMax = identifyMax / 4
)

// identifyPatience is how long the runtime and the kubelet may take to identify a
// caller.
const identifyPatience = 10 * time.Second

// Identifier identifies a process; an error refuses it.
type Identifier interface {
	Identify(ctx context.Context, pid int) (*Caller, error)
}

// Originator is an Identifier that also groups callers by pod, using only the kernel.
// Origin returns a name of the pod, and the same name for all processes outside of
// pods.
type Originator interface {
	Origin(pid int) string
}

// Limiter raises a process's limit of locked memory and returns the limit after that,
// both in bytes.
type Limiter interface {
	Raise(pid int, bytes uint64) (uint64, error)
}

// Config is the configuration of an agent.
type Config struct {
	// Socket is the path to listen on. The directory is mounted into sidecars.
	Socket  string
	Who     Identifier
	Limiter Limiter
	// MemlockMax bounds a limit, in bytes.
	MemlockMax uint64
	// Sockets makes packet sockets; nil if no pool is of the kind ether.
	Sockets Sockets
	Log     *slog.Logger
}

// Agent serves sidecars.
type Agent struct {
	config      Config
	listener    *net.UnixListener
	broker      *broker
	record      *record
	holders     holders
	origin      Originator    // nil: all callers share one bound
	places      chan struct{} // one element per open connection
	mu          sync.Mutex    // guards pods
	pods        map[string]*podConns
	identifying chan struct{}
	wg          sync.WaitGroup
}

// Listen makes an agent. Every process may connect to its socket; the caller's identity
// decides about its requests, because a sidecar may run as any user. A new agent
// replaces the socket of its predecessor atomically.
func Listen(c Config) (*Agent, error) {
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil {
		return nil, fmt.Errorf("the directory of the grant socket: %w", err)
	}
	fresh := c.Socket + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: fresh, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("the grant socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // by then a successor may have the name
	if err := errors.Join(os.Chmod(fresh, 0o666), os.Rename(fresh, c.Socket)); err != nil {
		return nil, errors.Join(fmt.Errorf("the grant socket: %w", err), l.Close())
	}
	origin, _ := c.Who.(Originator)
	return &Agent{
		config: c, listener: l, broker: newBroker(), record: newRecord(c.Log), origin: origin, pods: map[string]*podConns{},
		holders: holders{list: map[string]*rate.Limiter{}},
		places:  make(chan struct{}, connectionsMax), identifying: make(chan struct{}, identifyMax),
	}, nil
}

// Counts returns how many requests were granted and refused so far.
func (a *Agent) Counts() []Count { return a.record.counts() }

// Connections returns the number of open connections.
func (a *Agent) Connections() int { return len(a.places) }

// Serve serves until the context ends.
func (a *Agent) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer a.wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = a.listener.Close() }) // Accept returns an error
	defer stop()
	for {
		conn, err := a.listener.AcceptUnix()
		switch {
		case err == nil:
			a.admit(ctx, conn)
		case ctx.Err() != nil:
			return nil
		case passing(err):
			a.record.refused("", opConnection, fmt.Errorf("accepting: %w", err))
			pause(ctx, acceptPause)
		default:
			return fmt.Errorf("the grant socket: %w", err)
		}
	}
}

// acceptPause is the pause after an accept that failed because a resource is exhausted.
const acceptPause = 100 * time.Millisecond

// passing reports whether accept may succeed later: the caller has disconnected, or the
// node is short of descriptors or memory.
func passing(err error) bool {
	for _, e := range []error{unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// podConns counts the connections of one pod.
type podConns struct {
	of          string
	open        int           // number of open connections of the pod; guarded by the agent's mutex
	identifying chan struct{} // one element per connection whose caller is being identified
}

// enter counts a connection of its pod; nil if there are too many.
func (a *Agent) enter(conn *net.UnixConn) *podConns {
	of, most := "", connectionsMax
	if a.origin != nil {
		most = originMax
		if pid, err := pidOf(conn); err == nil {
			of = a.origin.Origin(pid)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.pods[of]
	if c == nil {
		c = &podConns{of: of, identifying: make(chan struct{}, originIdentifyMax)}
		if a.origin == nil {
			c.identifying = make(chan struct{}, identifyMax)
		}
		a.pods[of] = c
	}
	if c.open >= most {
		return nil
	}
	c.open++
	return c
}

func (a *Agent) exit(c *podConns) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.open--; c.open == 0 {
		delete(a.pods, c.of)
	}
}

// admit serves a connection, unless there are too many.
func (a *Agent) admit(ctx context.Context, conn *net.UnixConn) {
	own := a.enter(conn)
	if own == nil {
		a.record.refused("", opConnection, fmt.Errorf("more than %d connections of the processes of one pod", originMax))
		_ = conn.Close() // the caller sees the end
		return
	}
	select {
	case a.places <- struct{}{}:
	default:
		a.exit(own)
		a.record.refused("", opConnection, fmt.Errorf("more than %d connections", connectionsMax))
		_ = conn.Close() // the caller sees the end
		return
	}
	a.wg.Go(func() {
		defer func() { <-a.places; a.exit(own) }()
		stop := context.AfterFunc(ctx, func() { _ = grant.Drop(conn) }) // reads and writes return errors
		defer stop()
		defer func() { _ = grant.Drop(conn) }() // the caller sees the end
		s := &session{agent: a, conns: own, line: line{conn: conn}}
		s.attend(ctx)
	})
}
