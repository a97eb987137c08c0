package grant

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

func sidecar() *Caller {
	return &Caller{Namespace: "ns", Pod: "job-0", Container: "outrigger", Job: "job", Devices: 1}
}

// refused fails the test unless err is the agent's refusal, for this cause.
func refused(t *testing.T, err error, cause string) {
	t.Helper()
	var r *grant.Refused
	if !errors.As(err, &r) || !strings.Contains(r.Cause, cause) {
		t.Errorf("%v is not a refusal because of %q", err, cause)
	}
}

func TestMemlock(t *testing.T) {
	r := newRig(t)
	c := r.caller(sidecar())
	for _, step := range []struct{ ask, get uint64 }{{1 << 20, 1 << 20}, {1 << 10, 1 << 20}, {1 << 40, 1 << 30}} {
		if got, err := c.Memlock(t.Context(), step.ask); err != nil || got != step.get {
			t.Errorf("asked for %d: %d, %v, want %d", step.ask, got, err, step.get)
		}
	}
	_, err := c.Memlock(t.Context(), 13)
	refused(t, err, "unlucky")
	want := []Count{{Op: "connect"}, {Op: "connection"}, {Op: "ether"}, {Op: "join"}, {Op: "memlock", Granted: 3, Refused: 1}}
	if diff := cmp.Diff(want, r.agent.Counts()); diff != "" {
		t.Error(diff)
	}
}

// TestWithoutDevice: a caller without a device is refused every request, with the reason.
func TestWithoutDevice(t *testing.T) {
	r := newRig(t)
	for name, ask := range map[string]func(*grant.Client) error{
		"memlock": func(c *grant.Client) error { _, err := c.Memlock(t.Context(), 1); return err },
		"join":    func(c *grant.Client) error { return c.Join(t.Context(), 0) },
		"connect": func(c *grant.Client) error { _, err := c.Connect(t.Context(), 0); return err },
		"ether":   func(c *grant.Client) error { _, err := c.Ether(t.Context()); return err },
	} {
		t.Run(name, func(t *testing.T) { refused(t, ask(r.caller(nil)), "not allocated a device") })
	}
	if len(r.limits.bytes) != 0 {
		t.Errorf("limits were raised: %v", r.limits.bytes)
	}
}

// TestConnect: two sidecars of a job on one node get a connection and pass a descriptor of
// shared memory over it.
func TestConnect(t *testing.T) {
	r := newRig(t)
	zero, one := r.sidecar("job", 0), r.sidecar("job", 1)
	mine, err := zero.Connect(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	p, err := one.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Conn.Close()
	if p.Pod != 0 {
		t.Errorf("the connection is said to come from pod %d", p.Pod)
	}
	if got := passMemory(t, socketOf(t, mine), socketOf(t, p.Conn)); got != 0x0ddba11 {
		t.Errorf("the shared memory has %#x", got)
	}
}

func socketOf(t *testing.T, f *os.File) *net.UnixConn {
	t.Helper()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.UnixConn)
}

// passMemory sends a memfd from one side to the other and reads a word in it.
func passMemory(t *testing.T, from, to *net.UnixConn) uint32 {
	t.Helper()
	fd, err := unix.MemfdCreate("shared", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "shared")
	defer memory.Close()
	if err := binary.Write(memory, binary.LittleEndian, uint32(0x0ddba11)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := from.WriteMsgUnix([]byte{1}, unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := to.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages, %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	received := os.NewFile(uintptr(fds[0]), "received")
	defer received.Close()
	var word uint32
	if err := binary.Read(io.NewSectionReader(received, 0, 4), binary.LittleEndian, &word); err != nil {
		t.Fatal(err)
	}
	return word
}

// TestCrossingConnects: two sidecars request a connection to each other at the same time. An
// event that arrives before an answer is kept for Accept.
func TestCrossingConnects(t *testing.T) {
	r := newRig(t)
	zero, one := r.sidecar("job", 0), r.sidecar("job", 1)
	a, err := zero.Connect(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := one.Connect(t.Context(), 0) // the event of zero's request arrives before the answer
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i, c := range []*grant.Client{zero, one} {
		p, err := c.Accept(t.Context())
		if err != nil || p.Pod != 1-i {
			t.Fatalf("pod %d accepted %v, %v", i, p, err)
		}
		defer p.Conn.Close()
	}
}

func TestBrokerRefuses(t *testing.T) {
	r := newRig(t)
	zero := r.sidecar("job", 0)
	r.sidecar("other", 1)
	for _, c := range []struct {
		pod   int
		cause string
	}{{1, "not on this node"}, {0, "itself"}, {2, "not on this node"}} {
		_, err := zero.Connect(t.Context(), c.pod)
		refused(t, err, c.cause)
	}
	refused(t, zero.Join(t.Context(), 5), "joined already")
	stranger := r.caller(&Caller{Namespace: "elsewhere", Pod: "job-1", PodUID: "1", Container: "outrigger", Job: "job", Devices: 1})
	_, err := stranger.Connect(t.Context(), 0)
	refused(t, err, "join before connect")
	if err := stranger.Join(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	_, err = stranger.Connect(t.Context(), 0)
	refused(t, err, "not on this node") // a job of the same name in another namespace is another job
	jobless := r.caller(&Caller{Namespace: "ns", Pod: "p", Container: "c", Devices: 1})
	refused(t, jobless.Join(t.Context(), 0), "no job label")
}

// TestRejoin: a pod can join again when its earlier connection has ended.
func TestRejoin(t *testing.T) {
	r := newRig(t)
	first := r.sidecar("job", 0)
	second := r.caller(sidecar())
	refused(t, second.Join(t.Context(), 0), "another connection")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for second.Join(t.Context(), 0) != nil { // repeated until the agent has seen the end; the timeout of the test bounds the wait
		continue
	}
}

func TestConnectionsOfOnePod(t *testing.T) {
	r := newRig(t)
	for range connectionsPerPod {
		if _, err := r.caller(sidecar()).Memlock(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.caller(sidecar()).Memlock(t.Context(), 1)
	refused(t, err, "connections of one pod")
}

// TestNonsense: bytes that form no message end the connection with an answer, and descriptors
// sent with them are closed.
func TestNonsense(t *testing.T) {
	r := newRig(t)
	for name, text := range map[string]string{
		"not JSON": "hello", "version": `{"version":2,"op":"memlock"}`, "operation": `{"version":1,"op":"reboot"}`,
		"pod": `{"version":1,"op":"join","pod":-1}`, "long": `{"version":1,"op":"` + strings.Repeat("x", grant.MessageMax) + `"}`,
	} {
		r.who.expect(sidecar())
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.socket, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.WriteMsgUnix([]byte(text), unix.UnixRights(0, 0), nil); err != nil {
			t.Fatal(err)
		}
		m, _, err := grant.Receive(conn)
		if err != nil || m.Error == "" {
			t.Errorf("%s: %v, %v", name, m, err)
		}
		if _, _, err := grant.Receive(conn); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection goes on: %v", name, err)
		}
		_ = conn.Close()
	}
}

// TestRaise uses the kernel's limit of a real process: the soft limit is raised to the
// requested value, the hard limit is kept, and no limit is lowered.
func TestRaise(t *testing.T) {
	child := exec.CommandContext(t.Context(), "sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait() // the process was killed, which Wait reports as an error
	}()
	pid := child.Process.Pid
	var start unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 4096, Max: 65536}, nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ ask, get uint64 }{{8192, 8192}, {4096, 8192}, {65536, 65536}} {
		if got, err := (Memory{}).Raise(pid, step.ask); err != nil || got != step.get {
			t.Errorf("asked for %d: %d, %v, want %d", step.ask, got, err, step.get)
		}
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &start); err != nil || start != (unix.Rlimit{Cur: 65536, Max: 65536}) {
		t.Errorf("the child's limits are %+v, %v", start, err)
	}
	if _, err := (Memory{}).Raise(1<<30, 1); err == nil {
		t.Error("the limit of a process that does not exist was raised")
	}
}
