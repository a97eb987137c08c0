package grant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// TestSuccessor: a starting agent replaces its predecessor at once, and the end of the
// predecessor does not remove the new socket.
func TestSuccessor(t *testing.T) {
	old := newRig(t)
	next := newRigAt(t, nil, old.socket)
	if _, err := next.caller(sidecar()).Memlock(t.Context(), 1); err != nil {
		t.Errorf("while the predecessor runs: %v", err)
	}
	old.stop()
	if _, err := next.caller(sidecar()).Memlock(t.Context(), 1); err != nil {
		t.Errorf("after the predecessor: %v", err)
	}
	if left, err := filepath.Glob(old.socket + "*"); err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestRefusalIsHeard: a refused caller receives the reason, even if it sends its request after
// the agent has closed the connection, and for a reason of any length.
func TestRefusalIsHeard(t *testing.T) {
	long := strings.Repeat("because\x01", 1000)
	r := newRigFor(t, identifierFunc(func(context.Context, int) (*Caller, error) { return nil, errors.New(long) }))
	c := r.caller(nil)
	deadline := time.Now().Add(time.Minute)
	for r.agent.Connections() > 0 || r.agent.Counts()[1].Refused == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the agent keeps the connection of a caller that it has refused")
		}
		time.Sleep(time.Millisecond)
	}
	err := c.Join(t.Context(), 1)
	refused(t, err, "because\x01because")
	var text *grant.Refused
	if errors.As(err, &text) && len(text.Cause) > grant.MessageMax {
		t.Errorf("a reason of %d bytes", len(text.Cause))
	}
}

// TestAskEndsWithContext: a request ends with its context while the agent identifies the
// caller.
func TestAskEndsWithContext(t *testing.T) {
	asked := make(chan struct{})
	r := newRigFor(t, identifierFunc(func(ctx context.Context, _ int) (*Caller, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	c := r.caller(nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	go func() { <-asked; cancel(cause) }()
	if _, err := c.Memlock(ctx, 1); !errors.Is(err, cause) {
		t.Errorf("%v, want %v", err, cause)
	}
}

// TestStoppedReader: a sidecar that does not read its events loses its connection and its
// membership. The sidecar that requested the connection continues.
func TestStoppedReader(t *testing.T) {
	r := newRig(t)
	zero := r.sidecar("job", 0)
	r.sidecar("job", 1) // the caller reads nothing from now on
	var err error
	for err == nil {
		var f *os.File
		if f, err = zero.Connect(t.Context(), 1); f != nil {
			_ = f.Close() // the descriptor is not used
		}
	}
	refused(t, err, "pod 1")
	if _, err := zero.Memlock(t.Context(), 1); err != nil {
		t.Errorf("the asker: %v", err)
	}
	for r.sidecarAgain("job", 1) != nil { // repeated until the agent has seen the end; the timeout of the test bounds the wait
		continue
	}
}

// TestLoggedOnce: equal results are logged once, and counted each time.
func TestLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	r := newRecord(slog.New(slog.NewTextHandler(&out, nil)))
	for range 3 {
		r.granted("ns/a/c", grant.Memlock, "process 7 may lock 1 bytes")
		r.refused("ns/b/c", grant.Join, errors.New("the pod has no job label"))
		r.refused("", grant.Incoming, errors.New("not a request"))
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d lines for 3 things:\n%s", n, &out)
	}
	want := "[{connect 0 0} {connection 0 3} {ether 0 0} {join 0 3} {memlock 3 0}]"
	if got := fmt.Sprint(r.counts()); got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
	for i := range 3 * saidMax {
		r.refused(fmt.Sprint("ns/a/", i), grant.Memlock, errors.New("reason"))
	}
	if len(r.said) > saidMax || len(r.lines) > saidMax {
		t.Errorf("%d things and %d callers are remembered", len(r.said), len(r.lines))
	}
}

// TestLogOfOneCaller: a caller that sends a different request each time does not fill the log,
// and does not use up the lines of other callers.
func TestLogOfOneCaller(t *testing.T) {
	var out bytes.Buffer
	r := newRecord(slog.New(slog.NewTextHandler(&out, nil)))
	begun := time.Now()
	for i := range 1000 {
		r.granted("ns/a/c", grant.Memlock, fmt.Sprintf("process 7 may lock %d bytes", i))
		r.refused("ns/a/c", grant.Connect, fmt.Errorf("pod %d of the job is not on this node", i))
		r.refused("", opConnection, fmt.Errorf("open /proc/%d/cgroup: no such file", i))
	}
	r.refused("ns/b/c", grant.Join, errors.New("the pod has no job label"))
	most := 2*(linesBurst+linesRate*(1+int(time.Since(begun)/time.Second))) + 1
	if n := strings.Count(out.String(), "\n"); n < 3 || n > most {
		t.Errorf("%d lines of three callers, want %d at most", n, most)
	}
	if !strings.Contains(out.String(), "ns/b/c") {
		t.Error("the line of another caller is missing")
	}
}

// TestAliveWithoutCapabilities: the agent can see whether a process of another user is alive
// without a capability for it. The agent has only CAP_SYS_RESOURCE.
func TestAliveWithoutCapabilities(t *testing.T) {
	child := exec.CommandContext(t.Context(), "sleep", "600")
	if os.Geteuid() == 0 {
		child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(child.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{pid: child.Process.Pid, fd: fd}
	defer p.close()
	look := func() error {
		result := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread without capabilities ends with its goroutine
			none := [2]unix.CapUserData{}
			if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
				result <- fmt.Errorf("dropping capabilities: %w", err)
				return
			}
			result <- p.alive()
		}()
		return <-result
	}
	if err := look(); err != nil {
		t.Errorf("a living process: %v", err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // the process was killed, which Wait reports as an error
	if err := look(); err == nil || !strings.Contains(err.Error(), "has gone") {
		t.Errorf("a dead process: %v", err)
	}
}
