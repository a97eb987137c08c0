// Package launch runs the ranks of one pod: it starts a process for each, sends
// its output on with the rank in front, passes signals on, and ends the others
// when one has failed.
package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Event is one line of the status stream, JSON.
type Event struct {
	Event  string    `json:"event"` // started, exited or failed
	Rank   int       `json:"rank"`
	PID    int       `json:"pid,omitempty"`
	Code   int       `json:"code"`             // exit code; 128+signal for a signal, as a shell says it
	Signal string    `json:"signal,omitempty"` // name of the signal that ended it
	Reason string    `json:"reason,omitempty"` // why it could not be started
	Time   time.Time `json:"time"`
}

// Text says how a rank ended.
func (e *Event) Text() string {
	switch {
	case e.Reason != "":
		return "could not be started: " + e.Reason
	case e.Signal != "":
		return "was killed by " + e.Signal
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

// Config of a pod's ranks.
type Config struct {
	Socket      string
	First, Last int
	Program     []string
	Env         []string  // on top of the process's own
	Prefix      bool      // put "[rank] " before each line
	Out, Err    io.Writer // shared by all ranks, written in whole lines
	Status      io.Writer // nil: no status lines
	Grace       time.Duration
	Signals     <-chan os.Signal // passed on to every rank
}

// Exit codes of programs that cannot be run, as shells use them.
const (
	exitNotFound      = 127
	exitNotExecutable = 126
)

// pod is a running set of ranks.
type pod struct {
	cfg   Config
	mu    sync.Mutex
	procs map[int]*os.Process
	first *Event // first failure
	stop  chan struct{}
	once  sync.Once
	out   sync.Mutex
}

// Run runs the ranks to their end and returns the first failure, or nil.
func Run(ctx context.Context, cfg Config) *Event {
	if cfg.Grace == 0 {
		cfg.Grace = 2 * time.Second
	}
	p := &pod{cfg: cfg, procs: map[int]*os.Process{}, stop: make(chan struct{})}
	path, err := exec.LookPath(cfg.Program[0])
	if err != nil {
		return p.cannotRun(err)
	}
	var wg sync.WaitGroup
	for r := cfg.First; r <= cfg.Last; r++ {
		wg.Go(func() { p.run(r, path) })
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() { defer close(ended); p.supervise(ctx, done) }()
	wg.Wait()
	close(done)
	<-ended
	return p.first
}

func (p *pod) cannotRun(err error) *Event {
	e := &Event{Event: "failed", Rank: p.cfg.First, Code: exitNotFound, Reason: err.Error(), Time: time.Now()}
	if errors.Is(err, os.ErrPermission) {
		e.Code = exitNotExecutable
	}
	p.report(e)
	return e
}

// supervise passes signals on and ends everything on failure or cancellation:
// first politely, then not.
func (p *pod) supervise(ctx context.Context, done <-chan struct{}) {
	stop, cancelled := p.stop, ctx.Done()
	var kill <-chan time.Time
	for {
		select {
		case <-done:
			return
		case s := <-p.cfg.Signals:
			if sig, ok := s.(syscall.Signal); ok {
				p.signal(sig)
			}
			continue
		case <-stop:
			stop = nil
		case <-cancelled:
			cancelled = nil
		case <-kill:
			p.signal(unix.SIGKILL)
			kill = nil
			continue
		}
		if kill == nil {
			p.signal(unix.SIGTERM)
			kill = time.After(p.cfg.Grace)
		}
	}
}

// signal reaches the whole process group of every rank.
func (p *pod) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.procs {
		_ = unix.Kill(-proc.Pid, s) // it may just have ended
	}
}

// run is one rank from start to end.
func (p *pod) run(rank int, path string) {
	cmd := exec.Command(path, p.cfg.Program[1:]...)
	cmd.Env = append(append(os.Environ(), p.cfg.Env...),
		names.EnvSocket+"="+p.cfg.Socket, fmt.Sprintf("%s=%d", names.EnvRank, rank))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	var copies sync.WaitGroup
	var files []*os.File
	for _, dst := range []struct {
		to  io.Writer
		set *io.Writer
	}{{p.cfg.Out, &cmd.Stdout}, {p.cfg.Err, &cmd.Stderr}} {
		r, w, err := os.Pipe()
		if err != nil {
			p.fail(&Event{Event: "failed", Rank: rank, Code: 1, Reason: err.Error()})
			return
		}
		*dst.set = w
		files = append(files, w)
		copies.Go(func() { p.copyLines(rank, r, dst.to) })
	}
	// The death signal follows the thread that forks: it must live as long
	// as the child, so that the goroutine keeps it.
	lockThread()
	defer unlockThread()
	err := cmd.Start()
	for _, f := range files {
		_ = f.Close() // the child has its own
	}
	if err != nil {
		copies.Wait()
		e := &Event{Event: "failed", Rank: rank, Code: exitNotExecutable, Reason: err.Error()}
		p.fail(e)
		return
	}
	p.mu.Lock()
	p.procs[rank] = cmd.Process
	p.mu.Unlock()
	p.report(&Event{Event: "started", Rank: rank, PID: cmd.Process.Pid, Time: time.Now()})
	state, err := cmd.Process.Wait()
	p.mu.Lock()
	delete(p.procs, rank)
	p.mu.Unlock()
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // what the rank left behind in its group
	e := &Event{Event: "exited", Rank: rank, Time: time.Now()}
	if err != nil {
		e.Code, e.Reason = 1, err.Error()
	} else if ws := state.Sys().(syscall.WaitStatus); ws.Signaled() {
		e.Code, e.Signal = 128+int(ws.Signal()), unix.SignalName(ws.Signal())
	} else {
		e.Code = ws.ExitStatus()
	}
	copies.Wait()
	if e.Code != 0 {
		e.Event = "failed"
		p.fail(e)
		return
	}
	p.report(e)
}

func (p *pod) fail(e *Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	p.mu.Lock()
	if p.first == nil {
		p.first = e
	}
	p.mu.Unlock()
	p.report(e)
	p.once.Do(func() { close(p.stop) })
}

func (p *pod) report(e *Event) {
	if p.cfg.Status == nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		return // an Event always has a form
	}
	p.out.Lock()
	defer p.out.Unlock()
	_, _ = p.cfg.Status.Write(append(b, '\n')) // a reader that has gone asks for nothing
}

// lineMax bounds a line of output; a longer one is sent on in pieces.
const lineMax = 64 << 10

// copyLines sends whole lines on, so that those of several ranks do not mix.
func (p *pod) copyLines(rank int, r *os.File, w io.Writer) {
	defer func() { _ = r.Close() }() // only read
	in := bufio.NewReaderSize(r, lineMax)
	prefix := ""
	if p.cfg.Prefix {
		prefix = fmt.Sprintf("[%d] ", rank)
	}
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			out := append([]byte(prefix), line...)
			if out[len(out)-1] != '\n' {
				out = append(out, '\n')
			}
			p.out.Lock()
			_, _ = w.Write(out) // our own output may be closed; the rank goes on
			p.out.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
