package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/pmi"
)

// job is the process management of two pods of one rank each, connected by pipes; pod 1
// serves commands after a call of serve.
type job struct {
	sockets [2]string
	servers [2]*pmi.Server
	reached chan int // pods to which an agent has connected
}

func newJob(t *testing.T) *job {
	t.Helper()
	j := &job{reached: make(chan int, 64)}
	for pod := range j.servers {
		j.sockets[pod] = filepath.Join(t.TempDir(), "pmi")
		l, err := net.Listen("unix", j.sockets[pod])
		if err != nil {
			t.Fatal(err)
		}
		j.servers[pod] = pmi.New(pmi.Config{
			First: pod, Count: 1, Layout: []int{1, 1}, Job: "kvs", Log: slog.New(slog.DiscardHandler),
			Reach: func(_ context.Context, to int) (net.Conn, error) {
				here, there, err := pair()
				if err != nil {
					return nil, err
				}
				j.reached <- to
				go func() {
					defer func() { _ = there.Close() }()                     // both sides have received everything
					_ = j.servers[to].ServeExec(context.Background(), there) // the agent is told
				}()
				return here, nil
			},
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := j.servers[pod].Serve(l); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() {
			_ = l.Close()
			j.servers[pod].Close()
			wg.Wait()
		})
	}
	return j
}

// pair returns a connection that can be closed in one direction, as those of TLS can.
func pair() (net.Conn, net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		var err2 error
		ends[i], err2 = net.FileConn(f)
		err = errors.Join(err, err2, f.Close())
	}
	return ends[0], ends[1], err
}

// serve runs a pod's server until the test ends.
func (j *job) serve(t *testing.T, pod int, env ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		s := Server{Socket: j.sockets[pod], Env: append(os.Environ(), env...)}
		done <- s.Serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// run runs an agent in pod 0.
func (j *job) run(ctx context.Context, pod int, command, input string) (code int, out, errs string, err error) {
	var o, e bytes.Buffer
	a := Agent{Socket: j.sockets[0], In: strings.NewReader(input), Out: &o, Err: &e}
	code, err = a.Run(ctx, Line{Pod: pod, Command: command})
	return code, o.String(), e.String(), err
}

// TestRun checks that a command has its environment, its input and its exit code, in this
// pod and in another one, and that its output is complete and on the right streams.
func TestRun(t *testing.T) {
	j := newJob(t)
	j.serve(t, 0, "WHERE=pod 0")
	j.serve(t, 1, "WHERE=pod 1")
	long := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	for _, c := range []struct {
		pod            int
		command, input string
		code           int
		out, errs      string
	}{
		{0, `echo "$WHERE"; exit 3`, "", 3, "pod 0\n", ""},
		{1, `echo "$WHERE"; echo wrong >&2`, "", 0, "pod 1\n", "wrong\n"},
		{1, "cat", long, 0, long, ""},
		{1, "exit 200", long, 200, "", ""}, // the command does not read its input
		{1, "kill -9 $$", "", 137, "", ""},
		{1, "not-there-at-all 2>/dev/null", "", 127, "", ""},
	} {
		code, out, errs, err := j.run(t.Context(), c.pod, c.command, c.input)
		if err != nil || code != c.code || out != c.out || errs != c.errs {
			t.Errorf("%q in pod %d: %d, %d bytes of output, %q, %v; want %d, %d bytes, %q", c.command, c.pod, code, len(out), errs, err, c.code, len(c.out), c.errs)
		}
	}
}

// TestMany runs more commands than pods at once.
func TestMany(t *testing.T) {
	j := newJob(t)
	j.serve(t, 1)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if code, out, _, err := j.run(t.Context(), 1, "read x; echo got $x; exit "+strconv.Itoa(i), "it\n"); err != nil || code != i || out != "got it\n" {
				t.Errorf("%d: %d, %q, %v", i, code, out, err)
			}
		})
	}
	wg.Wait()
}

// TestAgentEnds checks that a command is terminated when its agent has gone, however much
// input waits that the command does not read.
func TestAgentEnds(t *testing.T) {
	for name, input := range map[string]string{"": "", "unread": strings.Repeat("0123456789abcdef", 1<<18)} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			j.serve(t, 1)
			at := filepath.Join(t.TempDir(), "fifo")
			if err := unix.Mkfifo(at, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error)
			go func() {
				_, _, _, err := j.run(ctx, 1, "trap 'exit 0' TERM; exec 3>"+at+"; echo here >&3; while :; do sleep 0.1; done", input)
				ended <- err
			}()
			f, err := os.Open(at) // waits for the command
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }() // it was only read
			if _, err := io.ReadFull(f, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			told := errors.New("mpirun has had enough")
			cancel(told)
			if err := <-ended; !errors.Is(err, told) || !strings.HasPrefix(err.Error(), "pod-1: ") {
				t.Errorf("the agent says %v", err)
			}
			if _, err := io.ReadAll(f); err != nil { // returns when the command has ended
				t.Error(err)
			}
		})
	}
}

// TestRefused checks the reasons of refusals.
func TestRefused(t *testing.T) {
	j := newJob(t)
	if _, _, _, err := j.run(t.Context(), 7, "true", ""); err == nil || !strings.Contains(err.Error(), "pod-0 to pod-1") {
		t.Errorf("a pod that is none: %v", err)
	}
	j.serve(t, 1)
	if _, _, _, err := j.run(t.Context(), 1, "true", ""); err != nil { // returns when pod 1 serves
		t.Fatal(err)
	}
	second := Server{Socket: j.sockets[1], Env: os.Environ()}
	if err := second.Serve(t.Context()); err == nil {
		t.Error("two serve in one pod")
	}
}

// TestAwaited checks that a command waits for a pod that does not serve yet, and then runs.
func TestAwaited(t *testing.T) {
	j := newJob(t)
	done := make(chan string)
	go func() {
		_, out, _, err := j.run(t.Context(), 1, "echo late", "")
		done <- out + errText(err)
	}()
	<-j.reached // the agent has asked, and no server waits
	j.serve(t, 1)
	if got := <-done; got != "late\n" {
		t.Errorf("%q", got)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParse(t *testing.T) {
	for args, want := range map[string]Line{
		"pod-1 orted -x": {1, "orted -x"},
		"-x pod-12 PATH=$PATH ; export PATH ; orted":   {12, "PATH=$PATH ; export PATH ; orted"},
		"-q -x -l me -oBatchMode=yes -p 22 me@pod-0 a": {0, "a"},
		"-- pod-3 b": {3, "b"},
	} {
		if got, err := Parse(strings.Fields(args)); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", args, got, err, want)
		}
	}
	for _, args := range []string{"", "pod-1", "-x", "-l", "node7 orted", "pod- a", "pod-x a", "pod--1 a"} {
		if got, err := Parse(strings.Fields(args)); err == nil {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// FuzzFrame checks that a frame is complete and within its bounds, or refused, for any
// bytes.
func FuzzFrame(f *testing.F) {
	var out bytes.Buffer
	if err := (&writer{out: &out}).frame(kindCommand, []byte("orted")); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add([]byte{kindOutput, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		if len(body) > commandMax || kind != kindCommand && len(body) > dataMax {
			t.Errorf("%q of %d bytes", kind, len(body))
		}
		var again bytes.Buffer
		if err := (&writer{out: &again}).frame(kind, body); err != nil || !bytes.HasPrefix(b, again.Bytes()) {
			t.Errorf("%v, %q is not what was read", err, again.Bytes())
		}
	})
}

// TestParseOtherHost checks that a host of another list is refused with the variables by
// which Open MPI finds one.
func TestParseOtherHost(t *testing.T) {
	if _, err := Parse([]string{"node1", "orted"}); err == nil || !strings.Contains(err.Error(), "SLURM_NODELIST") {
		t.Errorf("error %v", err)
	}
}
