package jobrun

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// silentPause is how long a sidecar may leave a request unanswered before the state of its
// process is checked, and the interval of the checks.
const silentPause = 200 * time.Millisecond

// pidFile is the file in a pod's directory with the number of its sidecar's process.
const pidFile = "sidecar.pid"

// stoppedError reports a sidecar that cannot answer because its process is stopped.
type stoppedError struct{ pid int }

func (e *stoppedError) Error() string {
	return fmt.Sprintf("nothing is known of its ranks: the process of its sidecar, %d, is stopped by a signal (SIGSTOP); kill -CONT %[1]d lets it go on", e.pid)
}

// fetchUnlessStopped does what fetch does, and ends when the sidecar's process is stopped: the
// kernel accepts the connection, and no answer comes.
func fetchUnlessStopped(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		look := time.NewTicker(silentPause)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
			if pid := sidecarOf(socket); seemsStopped(pid) {
				cancel(&stoppedError{pid})
			}
		}
	}()
	err := fetch(ctx, socket, path, into)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// sidecarOf returns the process of the sidecar with that metrics socket, or 0 if it is
// unknown.
func sidecarOf(socket string) int {
	b, err := os.ReadFile(filepath.Join(filepath.Dir(socket), pidFile)) //nolint:gosec // in the job's folder
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// seemsStopped reports whether a process, which need not be a child of this one, is stopped
// by a signal (proc_pid_stat(5), state T). A process in another PID namespace never seems
// stopped.
func seemsStopped(pid int) bool {
	if pid <= 0 {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false // it has ended
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // after the name, which is in parentheses
	return len(fields) > 0 && string(fields[0]) == "T"
}
