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
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// visitors identifies the callers by the order in which they connect, since all of them are
// the test's process.
type visitors struct {
	mu   sync.Mutex
	next []*Caller
}

func (v *visitors) expect(c *Caller) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next = append(v.next, c)
}

func (v *visitors) Identify(_ context.Context, pid int) (*Caller, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if pid != os.Getpid() {
		return nil, fmt.Errorf("process %d is not the test's", pid)
	}
	if len(v.next) == 0 || v.next[0] == nil {
		return nil, errNoDevice
	}
	c := v.next[0]
	v.next = v.next[1:]
	return c, nil
}

// limits is a Limiter that records the requests.
type limits struct {
	mu    sync.Mutex
	bytes map[int]uint64
}

func (l *limits) Raise(pid int, n uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n == 13 {
		return 0, errors.New("unlucky")
	}
	l.bytes[pid] = max(l.bytes[pid], n)
	return l.bytes[pid], nil
}

// identifierFunc is a function that implements Identifier.
type identifierFunc func(context.Context, int) (*Caller, error)

func (f identifierFunc) Identify(ctx context.Context, pid int) (*Caller, error) { return f(ctx, pid) }

// rig is an agent with simulated callers.
type rig struct {
	t       *testing.T
	who     visitors
	limits  limits
	agent   *Agent
	socket  string
	stop    func()
	started sync.WaitGroup
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigFor(t, nil)
}

// newRigFor returns a rig whose agent identifies callers with who, or with the rig's visitors
// if who is nil.
func newRigFor(t *testing.T, who Identifier) *rig {
	t.Helper()
	return newRigAt(t, who, filepath.Join(shortDir(t), "run", "grant.sock"))
}

func newRigAt(t *testing.T, who Identifier, socket string, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, socket: socket, limits: limits{bytes: map[int]uint64{}}}
	if who == nil {
		who = &r.who
	}
	var err error
	c := Config{Socket: r.socket, Who: who, Limiter: &r.limits, MemlockMax: 1 << 30, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, do := range change {
		do(&c)
	}
	r.agent, err = Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.started.Go(func() {
		if err := r.agent.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stop = func() {
		cancel()
		r.started.Wait()
	}
	t.Cleanup(r.stop)
	return r
}

// shortDir returns a directory with a short name, because the path of a socket is limited to
// 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	//nolint:usetesting // t.TempDir's names may be too long for a socket
	dir, err := os.MkdirTemp("", "gr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// caller connects as the given container, or, if c is nil, as a container without a device.
func (r *rig) caller(c *Caller) *grant.Client {
	r.t.Helper()
	r.who.expect(c)
	client, err := grant.Dial(r.t.Context(), r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = client.Close() })
	return client
}

// sidecar connects as the given pod of a job and joins. It waits for the answer, so that
// callers are identified in the order of the calls.
func (r *rig) sidecar(job string, pod int) *grant.Client {
	r.t.Helper()
	c := r.caller(&Caller{Namespace: "ns", Pod: fmt.Sprintf("%s-%d", job, pod), PodUID: fmt.Sprintf("%s-%d", job, pod), Container: "outrigger", Job: job, Devices: 1})
	if err := c.Join(r.t.Context(), pod); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// sidecarAgain connects as a sidecar that the agent may still refuse.
func (r *rig) sidecarAgain(job string, pod int) error {
	r.t.Helper()
	c := r.caller(&Caller{Namespace: "ns", PodUID: "again", Job: job, Devices: 1})
	err := c.Join(r.t.Context(), pod)
	return errors.Join(err, c.Close())
}

// serveGRPC serves until the end of the test, and returns the path of the socket.
func serveGRPC(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	socket := filepath.Join(shortDir(t), "s.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		s.Stop()
		wg.Wait()
	})
	return socket
}
