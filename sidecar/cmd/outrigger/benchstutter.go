package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
)

// stutter makes the sidecar of a job's last pod slow while the figure of the
// slow peer is measured: it is stopped and goes on, again and again.
type stutter struct {
	dir  string // the job's
	pod  int
	stop chan struct{}
	once sync.Once
	gone sync.WaitGroup
}

// How long the sidecar is stopped, and how long it runs. A peer is given up
// after seconds.
const (
	stutterStops = 200 * time.Millisecond
	stutterRuns  = 50 * time.Millisecond
)

// newStutter gives the job a directory in which the sidecar can be found.
func newStutter(s *jobrun.Spec) (*stutter, error) {
	dir, err := os.MkdirTemp("", "outrigger-bench-")
	if err != nil {
		return nil, fmt.Errorf("a directory for the job: %w", err)
	}
	s.Dir = dir
	return &stutter{dir: dir, pod: s.Pods - 1, stop: make(chan struct{})}, nil
}

// follow begins when the figure before the slow peer's is there, and ends with
// the slow peer's own.
func (x *stutter) follow(f bench.Figure) error {
	loads := bench.Loads(true)
	switch f.Op {
	case loads[len(loads)-2]:
		pid, err := x.sidecar()
		if err != nil {
			return err
		}
		x.gone.Go(func() { x.run(pid) })
	case bench.LoadSlowPeer:
		x.quiet()
	}
	return nil
}

// sidecar is the process that is to be slow.
func (x *stutter) sidecar() (int, error) {
	raw, err := os.ReadFile(filepath.Join(x.dir, "pod"+strconv.Itoa(x.pod), "sidecar.pid"))
	if err != nil {
		return 0, fmt.Errorf("the sidecar that is to be slow: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("the sidecar that is to be slow: %w", err)
	}
	return pid, nil
}

func (x *stutter) run(pid int) {
	signal := func(s unix.Signal, d time.Duration) bool {
		if unix.Kill(pid, s) != nil {
			return false // it has ended
		}
		select {
		case <-x.stop:
			_ = unix.Kill(pid, unix.SIGCONT) // it may have ended
			return false
		case <-time.After(d):
			return true
		}
	}
	for signal(unix.SIGSTOP, stutterStops) && signal(unix.SIGCONT, stutterRuns) {
	}
}

func (x *stutter) quiet() {
	x.once.Do(func() { close(x.stop) })
	x.gone.Wait()
}

// end removes what newStutter made.
func (x *stutter) end() {
	x.quiet()
	_ = os.RemoveAll(x.dir) // a temporary directory
}
