package jobrun

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// Failure is what went wrong first, and the exit code to give.
type Failure struct {
	Text string
	Code int
}

func (f *Failure) Error() string { return f.Text }

// Job is a running job.
type Job struct {
	spec     *Spec
	layout   *layout
	out, err io.Writer
	mu       sync.Mutex
	wg       sync.WaitGroup
	sidecars []*exec.Cmd
	launches []*exec.Cmd
	first    *Failure
	firstAt  time.Time
	failed   chan struct{}
	ending   bool
	ended    int           // launchers
	allEnded chan struct{} // closed when all of them have
	PIDs     map[int]int   // of the ranks, as they start
	entry    *registration // nil: not in the registry
}

// grace is how long processes get to end by themselves after SIGTERM.
const grace = 3 * time.Second

// Run runs a job to its end. report, when not nil, is called with the sidecars'
// reports after all ranks have ended well and before the sidecars stop.
func Run(ctx context.Context, s *Spec, out, errOut io.Writer, report func([]obs.Report) error) error {
	j, err := Start(ctx, s, out, errOut)
	if err != nil {
		return err
	}
	return j.Wait(ctx, report)
}

// Start starts the job's processes.
func Start(ctx context.Context, s *Spec, out, errOut io.Writer) (*Job, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	sidecar, err := companion("outrigger-sidecar")
	if err != nil {
		return nil, err
	}
	launcher, err := companion("outrigger-launch")
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath(s.Program[0]); err != nil {
		return nil, &Failure{Text: fmt.Sprintf("program %s: %v", s.Program[0], errors.Unwrap(err)), Code: 127}
	}
	l, err := prepare(s)
	if err != nil {
		return nil, err
	}
	j := &Job{spec: s, layout: l, out: &lockedWriter{w: out}, err: &lockedWriter{w: errOut}, failed: make(chan struct{}), allEnded: make(chan struct{})}
	for i := range s.Pods {
		if err := j.startSidecar(sidecar, i); err != nil {
			return nil, errors.Join(err, j.end())
		}
	}
	for i := range s.Pods {
		if err := j.startLauncher(launcher, i); err != nil {
			return nil, errors.Join(err, j.end())
		}
	}
	if j.entry, err = register(s, l); err != nil {
		_, _ = fmt.Fprintf(j.err, "outrigger: `outrigger top` will not see this job: %v\n", err) // the job runs without it
	}
	return j, nil
}

// lockedWriter lets several processes share one output, by whole writes.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (j *Job) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	return cmd
}

func (j *Job) startSidecar(path string, pod int) error {
	l := j.layout
	level := j.spec.LogLevel
	if level == "" {
		level = "error"
	}
	cmd := j.command(path, "--bootstrap", l.document(), "--pod", fmt.Sprint(pod), "--socket", l.socket(pod),
		"--metrics", "unix:"+l.metrics(pod), "--log-level", level)
	tail := &tailWriter{w: j.err}
	cmd.Stderr = tail
	if err := startHeld(cmd); err != nil {
		return fmt.Errorf("starting the sidecar of pod %d: %w", pod, err)
	}
	j.sidecars = append(j.sidecars, cmd)
	// For people and scripts that look after a job; nothing here reads it.
	if err := os.WriteFile(l.file("pod%d/sidecar.pid", pod), []byte(fmt.Sprintln(cmd.Process.Pid)), 0o600); err != nil {
		return fmt.Errorf("process id of the sidecar of pod %d: %w", pod, err)
	}
	j.wg.Go(func() {
		err := cmd.Wait()
		j.mu.Lock()
		ending := j.ending
		j.mu.Unlock()
		if ending {
			return
		}
		p := l.doc.Pods[pod]
		text := fmt.Sprintf("the sidecar of pod %d (ranks %d-%d) ended: %v", pod, p.FirstRank, p.FirstRank+p.Ranks-1, how(err))
		if last := tail.last(); last != "" {
			text += ": " + last
		}
		j.fail(&Failure{Text: text, Code: 1}, time.Now())
	})
	return nil
}

func how(err error) string {
	var x *exec.ExitError
	if errors.As(err, &x) {
		if ws, ok := x.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return "killed by " + unix.SignalName(ws.Signal())
		}
		return x.String()
	}
	if err != nil {
		return err.Error()
	}
	return "exit status 0"
}

func (j *Job) startLauncher(path string, pod int) error {
	p := j.layout.doc.Pods[pod]
	args := []string{"--socket", j.layout.socket(pod), "--ranks", fmt.Sprintf("%d-%d", p.FirstRank, p.FirstRank+p.Ranks-1), "--status-fd", "3"}
	if j.spec.Prefix {
		args = append(args, "--prefix")
	}
	cmd := j.command(path, append(append(args, "--"), j.spec.Program...)...)
	cmd.Env = append(os.Environ(), j.spec.Env...)
	cmd.Stdout, cmd.Stderr = j.out, j.err
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("status pipe: %w", err)
	}
	cmd.ExtraFiles = []*os.File{w}
	err = startHeld(cmd)
	_ = w.Close() // the launcher has its own
	if err != nil {
		return errors.Join(fmt.Errorf("starting the launcher of pod %d: %w", pod, err), r.Close())
	}
	j.launches = append(j.launches, cmd)
	done := make(chan struct{})
	j.wg.Go(func() { defer close(done); j.readStatus(r, pod) })
	j.wg.Go(func() {
		err := cmd.Wait()
		<-done
		if err != nil {
			// Its first failed rank was reported by a status line already.
			j.fail(&Failure{Text: fmt.Sprintf("the launcher of pod %d ended: %s", pod, how(err)), Code: 1}, time.Now())
		}
		j.launcherEnded()
	})
	return nil
}

func (j *Job) readStatus(r *os.File, pod int) {
	defer func() { _ = r.Close() }() // only read
	in := bufio.NewScanner(r)
	for in.Scan() {
		var e launch.Event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			continue // not ours: the pipe is inherited by whatever the launcher runs
		}
		if e.Event == "failed" {
			j.fail(&Failure{Text: fmt.Sprintf("rank %d (pod %d) %s", e.Rank, pod, e.Text()), Code: e.Code}, e.Time)
		}
	}
}

// fail keeps the earliest failure and starts the end of the job. Failures that
// the end itself brings about come later and do not count.
func (j *Job) fail(f *Failure, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == nil {
		close(j.failed)
	}
	if j.first == nil || at.Before(j.firstAt) {
		j.first, j.firstAt = f, at
	}
}

func (j *Job) launcherEnded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended++
	if j.ended == j.spec.Pods {
		close(j.allEnded)
	}
}

// startHeld starts cmd so that its death signal is tied to this process and not
// to the thread that happens to fork: Go's threads come and go.
func startHeld(cmd *exec.Cmd) error {
	answer := make(chan error)
	forks <- fork{cmd, answer}
	return <-answer
}

type fork struct {
	cmd    *exec.Cmd
	answer chan error
}

// tailWriter passes a sidecar's log on and remembers its last line.
type tailWriter struct {
	w  io.Writer
	mu sync.Mutex
	b  []byte
}

func (t *tailWriter) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.b = append(t.b[:0], bytes.TrimSpace(b)...)
	if len(t.b) > 1024 {
		t.b = t.b[len(t.b)-1024:]
	}
	t.mu.Unlock()
	return t.w.Write(b)
}

func (t *tailWriter) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := string(t.b)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
