// Package daemon runs long-lived programs by name: it starts them with a log file, ends them,
// and lists those that run. No program outlives the process that started it.
package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// grace is how long a program has after SIGTERM before it is killed.
const grace = 5 * time.Second

// pause is how long a program that ended by itself stays away before it is
// started again.
const pause = time.Second

// Command is a program to run.
type Command struct {
	Name string   // by which it is stopped; its log is Name.log
	Args []string // the program and its arguments
	Env  []string // added to this process's environment
	// Restart starts the program again when it ends by itself, as a machine's
	// service manager does.
	Restart bool
}

// Set is the running programs of one process.
type Set struct {
	logs string

	mu      sync.Mutex
	running map[string]*process
}

// process is one program over all its restarts.
type process struct {
	command Command
	stop    chan struct{} // closed to end it
	ended   chan struct{} // closed when it has ended for good
	err     error         // how it ended; valid once ended is closed
}

// NewSet makes an empty set whose programs log into the folder logs.
func NewSet(logs string) *Set {
	return &Set{logs: logs, running: map[string]*process{}}
}

// Start starts a program that does not run yet. Its output is appended to its
// log, so that the log has the whole story over restarts.
func (s *Set) Start(c Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.running[c.Name]; old != nil && !old.done() {
		return fmt.Errorf("%s runs already; stop it first", c.Name)
	}
	log, err := os.OpenFile(s.Log(c.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("log of %s: %w", c.Name, err)
	}
	p := &process{command: c, stop: make(chan struct{}), ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer log.Close()
		p.keep(log, started)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	s.running[c.Name] = p
	return nil
}

// keep runs the program until it is stopped, or has ended and shall not be
// started again. The kernel sends the parent-death signal when the thread that
// forked ends, not the process (prctl(2), PR_SET_PDEATHSIG), so each program
// keeps one thread.
func (p *process) keep(log *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	cmd, err := p.launch(log)
	started <- err
	for err == nil {
		stopped := p.wait(cmd)
		if stopped || !p.command.Restart {
			return
		}
		select {
		case <-p.stop:
			return
		case <-time.After(pause):
		}
		if cmd, err = p.launch(log); err != nil {
			p.err = err
		}
	}
}

func (p *process) launch(log *os.File) (*exec.Cmd, error) {
	cmd := exec.Command(p.command.Args[0], p.command.Args[1:]...)
	cmd.Env = append(os.Environ(), p.command.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: Ctrl-C at the terminal is for the caller, who ends
	// programs in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

// wait waits for the program's end. When it is to be stopped, it gets SIGTERM,
// and SIGKILL after a grace.
func (p *process) wait(cmd *exec.Cmd) (stopped bool) {
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	select {
	case p.err = <-waited:
		return false
	case <-p.stop:
	}
	// Errors of these calls mean that the program has ended already.
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case p.err = <-waited:
	case <-time.After(grace):
		_ = cmd.Process.Kill()
		p.err = <-waited
	}
	return true
}

func (p *process) done() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Stop ends a program: SIGTERM, and SIGKILL after a grace. A program that has
// ended already, or never ran, is no error.
func (s *Set) Stop(name string) {
	s.mu.Lock()
	p := s.running[name]
	delete(s.running, name)
	s.mu.Unlock()
	if p != nil {
		close(p.stop)
		<-p.ended
	}
}

// Running lists the programs that run, sorted.
func (s *Set) Running() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := []string{}
	for name, p := range s.running {
		if !p.done() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Alive returns an error if a program has ended by itself, with its exit status and the path
// of its log.
func (s *Set) Alive(name string) error {
	s.mu.Lock()
	p := s.running[name]
	s.mu.Unlock()
	if p == nil {
		return fmt.Errorf("%s was not started", name)
	}
	if p.done() {
		how := "of itself"
		if p.err != nil {
			how = p.err.Error()
		}
		return fmt.Errorf("%s has ended: %s; its log is %s", name, how, s.Log(name))
	}
	return nil
}

// Log returns the file that a program's output goes to.
func (s *Set) Log(name string) string { return filepath.Join(s.logs, name+".log") }
