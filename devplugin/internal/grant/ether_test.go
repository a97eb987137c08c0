package grant

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// maker is a Sockets that gives a pipe, and records the requests.
type maker struct {
	fails error
	is    PacketSocket // without the file
	mu    sync.Mutex   // guards asked and fd
	asked []SocketRequest
	fd    int // of the last pipe, the end that the maker keeps
}

// requests returns the requests so far, and the maker's end of the last pipe.
func (m *maker) requests() ([]SocketRequest, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked), m.fd
}

func (m *maker) Make(_ context.Context, r SocketRequest) (*PacketSocket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, r)
	if m.fails != nil {
		return nil, m.fails
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	m.fd = fds[0]
	s := m.is
	s.File = os.NewFile(uintptr(fds[1]), "made")
	return &s, nil
}

func newMaker() *maker {
	return &maker{is: PacketSocket{Interface: "net1", Index: 7, Address: "02:00:00:00:00:01", MTU: 9000}}
}

func etherRig(t *testing.T, s Sockets) *rig {
	t.Helper()
	return newRigAt(t, nil, filepath.Join(shortDir(t), "run", "grant.sock"), func(c *Config) { c.Sockets = s })
}

// etherSidecar is a sidecar that holds a device of each of these pools.
func etherSidecar(pools ...EtherPool) *Caller {
	c := sidecar()
	c.PodUID, c.Ether = "uid", pools
	return c
}

var net1 = EtherPool{Resource: "example.com/net1", Interface: "net1"}

// TestEther: a caller with a device gets a socket for the interface of its pool, with the
// properties of the interface. The descriptor stays non-blocking, and is the caller's alone.
func TestEther(t *testing.T) {
	m := newMaker()
	r := etherRig(t, m)
	s, err := r.caller(etherSidecar(net1)).Ether(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asked, fd := m.requests()
	defer unix.Close(fd)
	if s.Interface != "net1" || s.Index != 7 || s.Address.String() != "02:00:00:00:00:01" || s.MTU != 9000 {
		t.Errorf("%+v", s)
	}
	if len(asked) != 1 || asked[0].PID != os.Getpid() || asked[0].Interface != "net1" {
		t.Errorf("asked for %+v", asked)
	}
	flags, err := unix.FcntlInt(uintptr(s.FD), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	closeOnExec, err := unix.FcntlInt(uintptr(s.FD), unix.F_GETFD, 0)
	if err != nil || closeOnExec&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags of the descriptor %#x, %v", closeOnExec, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The pipe ends when the agent has closed its own descriptor, too.
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 60_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 || fds[0].Revents&unix.POLLHUP == 0 {
			t.Errorf("the agent keeps the socket: %d, %v, %#x", n, err, fds[0].Revents)
		}
		return
	}
}

// TestEtherRefused: each condition has its own reason, and no socket is made.
func TestEtherRefused(t *testing.T) {
	for cause, c := range map[string]*Caller{
		"not allocated a device of a pool of the kind ether":                   etherSidecar(),
		"the container holds example.com/net1 and outrigger.dev/ether, and it": etherSidecar(net1, EtherPool{Resource: "outrigger.dev/ether"}),
	} {
		m := newMaker()
		_, err := etherRig(t, m).caller(c).Ether(t.Context())
		refused(t, err, cause)
		if asked, _ := m.requests(); len(asked) > 0 {
			t.Errorf("%s: sockets were asked for: %v", cause, asked)
		}
	}
	_, err := newRig(t).caller(etherSidecar(net1)).Ether(t.Context())
	refused(t, err, "needs a pool of the kind ether")
	m := newMaker()
	m.fails = errors.New("the pod has no interface net1")
	_, err = etherRig(t, m).caller(etherSidecar(net1)).Ether(t.Context())
	refused(t, err, "no interface net1")
	if errors.Is(err, grant.ErrOlderAgent) {
		t.Errorf("%v is taken for the error of an earlier version", err)
	}
}

// TestEtherWithoutDescriptor: a request without a descriptor is refused, and the connection
// stays.
func TestEtherWithoutDescriptor(t *testing.T) {
	m := newMaker()
	r := etherRig(t, m)
	r.who.expect(etherSidecar(net1))
	c, err := net.Dial("unixpacket", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if err := grant.Send(c.(*net.UnixConn), &grant.Message{Version: grant.Version, Op: grant.Ether}, nil); err != nil {
			t.Fatal(err)
		}
		answer, f, err := grant.Receive(c.(*net.UnixConn))
		if err != nil || f != nil || !strings.Contains(answer.Error, "has no descriptor") {
			t.Fatalf("%+v, %v, %v", answer, f, err)
		}
	}
	if asked, _ := m.requests(); len(asked) > 0 {
		t.Errorf("sockets were asked for: %v", asked)
	}
}

// TestEtherBound: a container gets a bounded number of sockets, over all its connections, and
// another container is not concerned.
func TestEtherBound(t *testing.T) {
	m := newMaker()
	r := etherRig(t, m)
	begun, got := time.Now(), 0
	var err error
	for err == nil && got < 1000 {
		var s *grant.Socket
		c := r.caller(etherSidecar(net1))
		if s, err = c.Ether(t.Context()); err == nil {
			got++
			_, fd := m.requests()
			_ = errors.Join(s.Close(), unix.Close(fd), c.Close()) // the next connection must be admitted
		}
	}
	refused(t, err, "try again later")
	if most := socketsBurst + int(time.Since(begun)/socketsInterval) + 1; got < socketsBurst || got > most {
		t.Errorf("%d sockets, want %d to %d", got, socketsBurst, most)
	}
	other := etherSidecar(net1)
	other.PodUID = "another"
	s, err := r.caller(other).Ether(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, fd := m.requests()
	_ = errors.Join(s.Close(), unix.Close(fd)) // only that there is one matters
}

// TestHolders: the memory of containers is bounded. Containers that have their whole burst again
// are forgotten, and others are not.
func TestHolders(t *testing.T) {
	h := holders{list: map[string]*rate.Limiter{}}
	for i := range holdersMax {
		if !h.take(fmt.Sprint(i)) {
			t.Fatalf("container %d gets no socket", i)
		}
	}
	if h.take("one more") {
		t.Error("a container gets a socket without being remembered")
	}
	h.list["0"] = rate.NewLimiter(rate.Every(socketsInterval), socketsBurst)
	if !h.take("one more") || len(h.list) > holdersMax {
		t.Errorf("%d containers are remembered", len(h.list))
	}
}

// TestEtherOfAnOlderAgent: an agent of the version before knows no such operation. It ends the
// connection; the client's error has the agent's words and what to do.
func TestEtherOfAnOlderAgent(t *testing.T) {
	c := answering(t, `{"version":1,"op":"end","error":"bad message: unknown operation \"ether\""}`, nil)
	_, err := c.Ether(t.Context())
	refused(t, err, `unknown operation "ether"`)
	if !errors.Is(err, grant.ErrOlderAgent) || !strings.Contains(err.Error(), "update outrigger-devplugin") {
		t.Errorf("%v", err)
	}
}

// TestEtherAnswers: a client accepts no answer that is not an Ethernet interface with a
// descriptor, and keeps none of the descriptors.
func TestEtherAnswers(t *testing.T) {
	for text, cause := range map[string]string{
		`"interface":"net1","index":7,"address":"02:00:00:00:00:01","mtu":9000`:    "without a descriptor",
		`"index":7,"address":"02:00:00:00:00:01","mtu":9000`:                       "not an Ethernet interface",
		`"interface":"net1","address":"02:00:00:00:00:01","mtu":9000`:              "not an Ethernet interface",
		`"interface":"net1","index":-7,"address":"02:00:00:00:00:01","mtu":9000`:   "not an Ethernet interface",
		`"interface":"net1","index":7,"mtu":9000`:                                  "not an Ethernet interface",
		`"interface":"net1","index":7,"address":"02:00:00:00:00:00:00:01","mtu":9`: "bad message",
		`"interface":"net1","index":7,"address":"02:00:00:00:00:01","mtu":67`:      "not an Ethernet interface",
		`"interface":"net1","index":7,"address":"02:00:00:00:00:01","mtu":65536`:   "not an Ethernet interface",
	} {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		with := writer
		if cause == "without a descriptor" {
			with = nil
		}
		c := answering(t, `{"version":1,"op":"ether",`+text+`}`, with)
		if s, err := c.Ether(t.Context()); err == nil || !strings.Contains(err.Error(), cause) {
			t.Errorf("%s: %v, %v, want %q", text, s, err, cause)
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := reader.Read(make([]byte, 1)); n != 0 || err == nil { // it waits while a descriptor is open
			t.Errorf("%d, %v", n, err)
		}
		_ = reader.Close() // it has been read to its end
	}
}

// answering returns a client of an agent that gives one answer, with a descriptor if f is not
// nil.
func answering(t *testing.T, text string, f *os.File) *grant.Client {
	t.Helper()
	socket := filepath.Join(shortDir(t), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := grant.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	if _, _, err := agent.WriteMsgUnix([]byte(text), rights, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(c.Close(), agent.Close(), l.Close()) })
	return c
}
