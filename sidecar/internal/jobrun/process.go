package jobrun

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/mpi"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

func (j *Job) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	return cmd
}

// drain is the time for sidecars to deliver the remaining messages: less than grace.
const drain = "2s"

func (j *Job) startSidecar(path string, pod int) error {
	l := j.layout
	log, err := j.openLog(pod)
	if err != nil {
		return err
	}
	cmd := j.command(path, "--bootstrap", l.document(), "--pod", fmt.Sprint(pod), "--socket", l.socket(pod),
		"--metrics", "unix:"+l.metrics(pod), "--log-level", log.level(j.spec.LogLevel), "--listen", "fd:3", "--drain", drain,
		"--termination-log", l.words(pod))
	if f, err := mpi.Parse(j.spec.MPI); err == nil && (f == mpi.Unsaid || f == mpi.None) {
		cmd.Args = append(cmd.Args, "--no-pmi")
	}
	if j.spec.Trace != "" {
		cmd.Args = append(cmd.Args, "--trace", fmt.Sprint(traceEvents))
	}
	if l.keep { // otherwise the file could not be read after the job
		cmd.Args = append(cmd.Args, "--flight", l.flight(pod))
	}
	j.logs = append(j.logs, log)
	cmd.ExtraFiles = l.inherited(l.listens[pod])
	cmd.Stderr = log
	if err := startHeld(cmd); err != nil {
		log.close()
		return fmt.Errorf("starting the sidecar of pod %d: %w", pod, err)
	}
	j.sidecars = append(j.sidecars, cmd)
	// The file is for people and scripts, and for sidecarOf.
	if err := os.WriteFile(l.file("pod%d/"+pidFile, pod), []byte(fmt.Sprintln(cmd.Process.Pid)), 0o600); err != nil {
		log.lose(err) // a full disk must not end the job
	}
	j.wg.Go(func() {
		err := cmd.Wait()
		log.close()
		j.mu.Lock()
		dismissed := j.ending && j.gone[pod].IsZero() // otherwise it had ended before, and its memory was freed only now
		j.mu.Unlock()
		if dismissed {
			return
		}
		p := l.doc.Pods[pod]
		text := fmt.Sprintf("the sidecar of pod %d (%s) ended: %v", pod, podlife.RankRange(p.FirstRank, p.FirstRank+p.Ranks-1), how(err))
		if last := log.person.last(); last != "" {
			text += ": " + last
		}
		j.mu.Lock()
		j.reports[pod].Daemon, j.reports[pod].Sidecar = endingOf(err, text), finalMessage(l.words(pod))
		j.mu.Unlock()
		j.fail(&Failure{Text: text, Code: 1}, time.Now())
	})
	return nil
}

// finalMessage returns the message that a failed sidecar has left in its file, or nil if
// there is none.
func finalMessage(path string) *podlife.Message {
	m, err := podlife.Read(path)
	if err != nil || m.Kind != podlife.KindSidecar || len(m.Failures) == 0 {
		return nil
	}
	return m
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
	if j.layout.lock != nil {
		args = append(args, "--lock-fd", "4")
	}
	if j.spec.Prefix {
		args = append(args, "--prefix")
	}
	args = append(args, "--grace", j.grace().String())
	if j.spec.MPI != "" {
		args = append(args, "--mpi", j.spec.MPI)
	}
	if j.spec.StdinFile != "" {
		args = append(args, "--stdin", j.spec.StdinFile)
	}
	of := j.spec.of(pod)
	cmd := j.command(path, append(append(args, "--"), of.Program...)...)
	cmd.Env, cmd.Dir = append(os.Environ(), of.Env...), j.spec.WorkDir
	if p.FirstRank == 0 && j.spec.Stdin != nil {
		cmd.Stdin = j.spec.Stdin
	}
	pipes, err := pipesFor(cmd)
	if err != nil {
		return fmt.Errorf("pipes of the launcher of pod %d: %w", pod, err)
	}
	cmd.ExtraFiles = j.layout.inherited(cmd.ExtraFiles...)
	err = startHeld(cmd)
	pipes.started()
	if err != nil {
		return errors.Join(fmt.Errorf("starting the launcher of pod %d: %w", pod, err), pipes.close())
	}
	j.mu.Lock()
	j.launches = append(j.launches, cmd)
	j.launched[pod] = time.Now()
	j.running++
	j.mu.Unlock()
	var read sync.WaitGroup
	read.Go(func() { j.readStatus(pipes.status, pod) })
	read.Go(func() { j.copyOutput(j.out, pipes.out) })
	read.Go(func() { j.copyOutput(j.err, pipes.err) })
	j.wg.Go(func() {
		err := cmd.Wait()
		if err != nil {
			j.hurry() // unread output in its pipes must not delay the report of its end
		}
		read.Wait()
		if err != nil {
			// The first failed rank was reported by a status line already.
			text := fmt.Sprintf("the launcher of pod %d ended: %s", pod, how(err))
			j.mu.Lock()
			if !j.ending || j.killedByOther(cmd) { // otherwise this process has ended it
				j.reports[pod].Application = endingOf(err, text)
			}
			j.mu.Unlock()
			j.fail(&Failure{Text: text, Code: 1}, time.Now())
		}
		j.launcherEnded(pod, err == nil)
	})
	return nil
}

// failure converts a launcher's report of a rank's end to the form of the job's status.
func (s *Spec) failure(e *launch.Event) podlife.Failure {
	f := e.Failure()
	if s.Container && (f.Reason == podlife.RankExited || f.Reason == podlife.RankKilled) {
		f.Reason, f.Signal = podlife.OfExit(f.Code, f.Signal)
	}
	return f
}

func (j *Job) readStatus(r io.ReadCloser, pod int) {
	defer func() { _ = r.Close() }() // it was only read
	in := bufio.NewScanner(r)
	for in.Scan() {
		var e launch.Event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			continue // from a launcher of another release
		}
		j.mu.Lock()
		j.ranks[e.Rank] = e.Event == "started"
		if e.Event == "started" {
			j.started[e.Rank] = e.Time
			j.sendEarlierNotices(pod, e.Time)
		}
		j.mu.Unlock()
		if e.Event == "failed" {
			j.recordFailure(pod, j.spec.failure(&e), hasEnded(j.sidecars[pod].Process.Pid))
			j.fail(&Failure{Text: fmt.Sprintf("rank %d (pod %d) %s", e.Rank, pod, e.Text()), Code: e.Code}, e.Time)
		}
	}
}

// pipes holds the pipes into which a launcher writes. Its end is noticed when it has ended,
// and not when all that it has written is read.
type pipes struct {
	out, err, status *os.File
	theirs           []*os.File
}

// pipesFor makes the pipes of a process: two for its output, and one for descriptor 3.
func pipesFor(cmd *exec.Cmd) (*pipes, error) {
	p := new(pipes)
	for _, end := range []**os.File{&p.out, &p.err, &p.status} {
		r, w, err := os.Pipe()
		if err != nil {
			p.started()
			return nil, errors.Join(err, p.close())
		}
		*end, p.theirs = r, append(p.theirs, w)
	}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = p.theirs[0], p.theirs[1], p.theirs[2:]
	return p, nil
}

// started closes the ends that the process has inherited.
func (p *pipes) started() {
	for _, f := range p.theirs {
		_ = f.Close() // nothing was written
	}
}

// close closes the ends that would be read.
func (p *pipes) close() error {
	var errs []error
	for _, f := range []*os.File{p.out, p.err, p.status} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// copyOutput copies the output of a launcher's ranks to w until r ends, and closes r.
func (j *Job) copyOutput(w *outlet.Writer, r io.ReadCloser) {
	defer func() { _ = r.Close() }() // it was only read
	mode := outlet.Unmarked
	if j.spec.Prefix {
		mode = outlet.Relayed
	}
	s := w.Stream(mode, "")
	_, _ = io.Copy(s, r) // a Stream accepts all bytes, and a pipe that cannot be read has ended
	s.Flush()
}

// startHeld starts cmd so that its death signal is tied to this process and not to the
// thread that forks: Go's threads come and go.
func startHeld(cmd *exec.Cmd) error {
	answer := make(chan error)
	forks <- fork{cmd, answer}
	return <-answer
}

type fork struct {
	cmd    *exec.Cmd
	answer chan error
}

// forks is served by one thread that lives as long as the process.
var forks = make(chan fork)

func init() {
	go func() {
		runtime.LockOSThread()
		for f := range forks {
			f.answer <- f.cmd.Start()
		}
	}()
}
