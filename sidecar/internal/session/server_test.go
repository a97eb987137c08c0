package session

import (
	"bytes"
	"errors"
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

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is an engine that only counts: it frees a session as soon as its socket closes.
type host struct {
	mu       sync.Mutex
	attached map[uint32]*Session
	refuse   error
	gone     int
	expelled []error
	later    map[*Session]chan error // sessions that wait until they may attach; nil: no session has to
	t        *testing.T
}

func (h *host) AttachSession(s *Session) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.later != nil {
		answer := make(chan error)
		h.later[s] = answer
		h.mu.Unlock()
		err := <-answer
		h.mu.Lock()
		return err
	}
	if h.refuse != nil {
		return h.refuse
	}
	h.attached[s.Rank] = s
	return nil
}

func (h *host) Withdraw(s *Session, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if answer := h.later[s]; answer != nil {
		delete(h.later, s)
		answer <- cause
	}
}

// waiting returns how many sessions wait until they may attach.
func (h *host) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.later)
}

func (h *host) SessionGone(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone++
	delete(h.attached, s.Rank)
	if err := s.Free(); err != nil {
		h.t.Error(err)
	}
}

func (h *host) Expel(s *Session, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expelled = append(h.expelled, cause)
	s.SetFailure(cause.Error())
	s.HangUp()
}

func (h *host) session(rank uint32) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attached[rank]
}

// waitGone waits until n sessions have ended.
func (h *host) waitGone(n int) {
	h.t.Helper()
	wait(h.t, "the end of sessions", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.gone >= n
	})
}

// timeout is when a test counts as hung.
const timeout = 30 * time.Second

func wait(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting for %s", what)
		}
	}
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

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.b.String(), text)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.b.String(), text)
}

// bench is a server under test.
type bench struct {
	*Server
	host *host
	log  *journal
	path string
}

// serve runs a server for ranks 4 to 7 of 16 until the test ends. No descriptor may be left
// then.
func serve(t *testing.T, change ...func(*Config)) *bench {
	t.Helper()
	before := descriptors(t)
	dir, err := os.MkdirTemp("", "session-") //nolint:usetesting // socket paths are short; t.TempDir's need not be
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{host: &host{attached: map[uint32]*Session{}, t: t}, log: new(journal), path: filepath.Join(dir, "s")}
	cfg := Config{
		Ranks: 16, Pod: 1, Pods: 4, First: 4, Count: 4, ArenaBytes: 1 << 20, ArenaMax: 1 << 44,
		Geometry: segment.Geometry{SubmitEntries: 64, CompleteEntries: 64, SlabBytes: 1 << 16}, EagerBytes: 512,
		Log: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	if b.Server, err = Listen(b.path, cfg, b.host); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(t.Context()) }()
	t.Cleanup(func() {
		if err := errors.Join(b.Close(), <-served, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors after the server, %d before", after, before)
		}
	})
	return b
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// client is an application at the other end of the socket.
type client struct {
	*net.UnixConn
	t *testing.T
}

func (b *bench) dial(t *testing.T) *client {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: b.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // most tests have closed it
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return &client{c, t}
}

func hello(rank uint32) *shm.Hello {
	return &shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesAll, Rank: rank}
}

// say sends raw bytes and returns the answer with its descriptors.
func (c *client) say(raw []byte) (shm.Welcome, []int) {
	c.t.Helper()
	if _, err := c.Write(raw); err != nil {
		c.t.Fatal(err)
	}
	return c.answer()
}

func (c *client) answer() (shm.Welcome, []int) {
	c.t.Helper()
	b, oob := make([]byte, shm.WelcomeBytes), make([]byte, unix.CmsgSpace(3*4))
	n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		c.t.Fatal(err)
	}
	w, err := shm.DecodeWelcome(b[:n])
	if err != nil {
		c.t.Fatal(err)
	}
	if oobn == 0 {
		return w, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		c.t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { closeAll(fds) })
	return w, fds
}

// refused sends raw and expects a refusal with the text want, and then the end of the
// connection.
func (c *client) refused(raw []byte, want string) {
	c.t.Helper()
	w, fds := c.say(raw)
	if w.Accepted || len(fds) != 0 || !strings.Contains(w.Text, want) {
		c.t.Errorf("accepted %v with %d descriptors, text %q; want a refusal with %q", w.Accepted, len(fds), w.Text, want)
	}
	var b [1]byte
	if n, err := c.Read(b[:]); n != 0 || err == nil {
		c.t.Errorf("after a refusal: %d bytes, %v; want the end", n, err)
	}
}
