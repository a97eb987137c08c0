package peers

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is the time after which a test counts as hung.
const patience = 30 * time.Second

func wait(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// journal is a log that tests read.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func (j *journal) has(text string) bool { return strings.Contains(j.String(), text) }

// job is an authority with the credentials of its pods.
type job struct {
	t  *testing.T
	id string
	ca *pki.Authority
}

func newJob(t *testing.T, id string, life time.Duration) *job {
	t.Helper()
	ca, err := pki.New(id, life)
	if err != nil {
		t.Fatal(err)
	}
	return &job{t, id, ca}
}

// credentials returns those of a pod, which trusts the job's authority.
func (j *job) credentials(pod int) *tls.Config {
	j.t.Helper()
	leaf, err := j.ca.Leaf(pod)
	if err != nil {
		j.t.Fatal(err)
	}
	dir := j.t.TempDir()
	files := map[string][]byte{"ca": j.ca.CA(), "cert": leaf.Cert, "key": leaf.Key}
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			j.t.Fatal(err)
		}
	}
	c, err := pki.Config(filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key"))
	if err != nil {
		j.t.Fatal(err)
	}
	return c
}

// node is a mesh and the sockets that it has handed over.
type node struct {
	*Mesh
	t      *testing.T
	log    *journal
	served chan error

	mu  sync.Mutex
	fds map[link.Peer][]int // the newest last
}

// nodes makes a mesh for each listed pod of a job of size pods. The address of a pod
// without a mesh refuses connections. At the end all descriptors must be closed.
func (j *job) nodes(size int, pods []int, change ...func(*Config)) []*node {
	t := j.t
	t.Helper()
	before := descriptors(t)
	listeners, addresses := make([]net.Listener, size), make([]string, size)
	for i := range size {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i], addresses[i] = l, l.Addr().String()
	}
	var list []*node
	for _, pod := range pods {
		n := &node{t: t, log: new(journal), served: make(chan error, 1), fds: map[link.Peer][]int{}}
		cfg := Config{
			Self: link.Peer(pod), Job: j.id, Addresses: addresses, TLS: j.credentials(pod),
			Log: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Connected: n.connectedTo,
		}
		for _, f := range change {
			f(&cfg)
		}
		n.Mesh = New(cfg, listeners[pod])
		listeners[pod] = nil
		go func() { n.served <- n.Serve() }()
		list = append(list, n)
	}
	for _, l := range listeners {
		if l != nil {
			_ = l.Close() // no mesh has connected to it
		}
	}
	t.Cleanup(func() {
		for _, n := range list {
			n.end()
		}
		wait(t, "descriptors to be closed", func() bool { return descriptors(t) <= before })
	})
	return list
}

// end closes the node and the sockets that it has handed over.
func (n *node) end() {
	if err := errors.Join(n.Close(), <-n.served); err != nil {
		n.t.Error(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, list := range n.fds {
		for _, fd := range list {
			_ = unix.Close(fd) // it is not used any more
		}
	}
	clear(n.fds)
	n.Drain()
}

func (n *node) connectedTo(peer link.Peer, fd int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fds[peer] = append(n.fds[peer], fd)
}

func (n *node) count(peer link.Peer) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.fds[peer])
}

func (n *node) newest(peer link.Peer) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fds[peer][len(n.fds[peer])-1]
}

// waitConnected waits until count connections to peer were handed over.
func (n *node) waitConnected(peer link.Peer, count int) {
	n.t.Helper()
	wait(n.t, fmt.Sprintf("connection %d to %d", count, peer), func() bool { return n.count(peer) >= count })
}

// talk sends text from one socket to the other and reports whether it arrived.
func talk(t *testing.T, from, to int, text string) bool {
	t.Helper()
	if _, err := unix.Write(from, []byte(text)); err != nil {
		return false
	}
	got := ""
	b := make([]byte, 256)
	for got != text {
		n, err := unix.Read(to, b)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			p := []unix.PollFd{{Fd: int32(to), Events: unix.POLLIN}}
			if k, _ := unix.Poll(p, int(patience.Milliseconds())); k == 0 { // an error is a reason to read again
				t.Fatalf("%q has not arrived; so far %q", text, got)
			}
		case err != nil || n == 0:
			return false
		default:
			got += string(b[:n])
		}
	}
	return true
}

func bothWays(t *testing.T, a, b *node) {
	t.Helper()
	x, y := a.newest(b.cfg.Self), b.newest(a.cfg.Self)
	if !talk(t, x, y, "there") || !talk(t, y, x, "and back") {
		t.Errorf("pods %d and %d are not connected with each other", a.cfg.Self, b.cfg.Self)
	}
}
