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

// slowSidecar makes the sidecar of a job's last pod slow while the figure of the slow peer
// is measured: it stops and continues the process repeatedly.
type slowSidecar struct {
	dir     string // the job's directory
	pod     int
	stop    chan struct{}
	once    sync.Once
	running sync.WaitGroup
}

// Times for which the sidecar is stopped and runs. A stop is far below the seconds after
// which peers hold a sidecar for failed.
const (
	stopTime = 200 * time.Millisecond
	runTime  = 50 * time.Millisecond
)

// newSlowSidecar gives the job a directory, in which the sidecar's process id can be found.
func newSlowSidecar(s *jobrun.Spec) (*slowSidecar, error) {
	dir, err := os.MkdirTemp("", "outrigger-bench-")
	if err != nil {
		return nil, fmt.Errorf("directory of the job: %w", err)
	}
	s.Dir = dir
	return &slowSidecar{dir: dir, pod: s.Pods - 1, stop: make(chan struct{})}, nil
}

// follow slows the sidecar down after the figure that precedes the slow peer's, and stops
// after the slow peer's.
func (x *slowSidecar) follow(f bench.Figure) error {
	loads := bench.Loads(true)
	switch f.Op {
	case loads[len(loads)-2]:
		pid, err := x.pid()
		if err != nil {
			return err
		}
		x.running.Go(func() { x.run(pid) })
	case bench.LoadSlowPeer:
		x.end()
	}
	return nil
}

// pid returns the process id of the sidecar.
func (x *slowSidecar) pid() (int, error) {
	raw, err := os.ReadFile(filepath.Join(x.dir, "pod"+strconv.Itoa(x.pod), "sidecar.pid"))
	if err != nil {
		return 0, fmt.Errorf("process id of the sidecar to slow down: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("process id of the sidecar to slow down: %w", err)
	}
	return pid, nil
}

// run stops and continues the sidecar until end is called or the process has ended.
func (x *slowSidecar) run(pid int) {
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
	for signal(unix.SIGSTOP, stopTime) && signal(unix.SIGCONT, runTime) {
	}
}

// end leaves the sidecar running and waits for run to return.
func (x *slowSidecar) end() {
	x.once.Do(func() { close(x.stop) })
	x.running.Wait()
}

// close ends the slowdown and removes the job's directory.
func (x *slowSidecar) close() {
	x.end()
	_ = os.RemoveAll(x.dir) // a temporary directory
}
