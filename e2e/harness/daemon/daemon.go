// Package daemon runs long-lived programs by name: starts them with a log file,
// ends them, and knows which still run. None outlives the process that started
// it.
package daemon

import (
	"errors"
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

// Command is a program to run.
type Command struct {
	Name string   // by which it is stopped; its log is Name.log
	Args []string // the program and its arguments
	Env  []string // added to this process's environment
}

// Set is the running programs of one process.
type Set struct {
	logs string

	mu      sync.Mutex
	running map[string]*process
}

type process struct {
	os    *os.Process
	ended chan struct{} // closed when it has ended and was waited for
	err   error         // what Wait said; valid once ended is closed
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
		return fmt.Errorf("%s runs already, as process %d; stop it first", c.Name, old.os.Pid)
	}
	log, err := os.OpenFile(s.Log(c.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("log of %s: %w", c.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	s.running[c.Name] = p
	return nil
}

// launch starts cmd so that it dies with this process. The kernel sends the
// parent-death signal when the thread that forked ends, not the process
// (prctl(2), PR_SET_PDEATHSIG), so one thread stays for each program.
func launch(cmd *exec.Cmd) (*process, error) {
	// A group of its own: Ctrl-C at the terminal is for the caller, who ends
	// programs in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.os = cmd.Process
	return p, nil
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
func (s *Set) Stop(name string) error {
	s.mu.Lock()
	p := s.running[name]
	delete(s.running, name)
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(grace):
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	<-p.ended
	return nil
}

func (p *process) signal(number syscall.Signal) error {
	if err := p.os.Signal(number); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
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

// Alive is an error when a program has ended by itself: how, and where its log
// is.
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

// Log is the file that a program's output goes to.
func (s *Set) Log(name string) string { return filepath.Join(s.logs, name+".log") }
