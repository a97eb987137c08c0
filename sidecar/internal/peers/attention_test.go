package peers

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// stopsItself is set in the child process that stops itself while it dials.
const stopsItself = "PEERS_TEST_STOPS"

// stoppedSilence is the Silence of that process.
const stoppedSilence = time.Second

// TestStoppedDialler checks that a sidecar that is stopped after its peer's kernel has
// accepted a connection, for longer than Silence, gives the peer that time after it
// continues.
func TestStoppedDialler(t *testing.T) {
	if os.Getenv(stopsItself) != "" {
		stopWhileDialling(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoppedDialler$", "-test.count=1")
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), stopsItself+"=1"), os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	for info.Signo == 0 { // without end if it does not stop
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * stoppedSilence)
	_ = unix.Kill(cmd.Process.Pid, unix.SIGCONT) // the process may have ended
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func stopWhileDialling(t *testing.T) {
	failures := make(chan error, 1)
	n := newJob(t, "j", time.Hour).nodes(2, []int{0}, func(c *Config) {
		c.Silence, c.Failed = stoppedSilence, func(_ link.Peer, cause error) { failures <- cause }
	})[0]
	silent, err := net.Listen("tcp", n.cfg.Addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }() // the kernel accepts, and the peer sends nothing
	n.Connect(1)
	c, err := silent.Accept() // left open
	if err == nil {
		_, err = c.Read(make([]byte, 1)) // the dialler waits for an answer
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(stoppedSilence / 20) // the signal may reach another thread first
	begun := time.Now()
	cause := <-failures
	if after := time.Since(begun); after < stoppedSilence/2 {
		t.Errorf("the peer failed %v after this process continued: %v", after, cause)
	}
}

// TestAcceptedBeforeItHasStarted checks that a peer whose socket was opened for it, so
// that its kernel accepts connections while the peer waits for a processor, has the time
// Early.
func TestAcceptedBeforeItHasStarted(t *testing.T) {
	const silence = 200 * time.Millisecond
	j := newJob(t, "j", time.Hour)
	n := j.nodes(2, []int{0}, func(c *Config) {
		c.Silence, c.Early = silence, patience
		c.Failed = func(_ link.Peer, cause error) { t.Error(cause) }
	})[0]
	l, err := net.Listen("tcp", n.cfg.Addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	n.Connect(1)
	time.Sleep(3 * silence)
	cfg := n.cfg
	late := &node{t: t, log: new(journal), served: make(chan error, 1), fds: map[link.Peer][]int{}}
	cfg.Self, cfg.TLS, cfg.Connected, cfg.Incarnation = 1, j.credentials(1), late.connectedTo, n.cfg.Incarnation+1
	late.Mesh = New(cfg, l)
	go func() { late.served <- late.Serve() }()
	n.waitConnected(1, 1)
	late.end()
}
