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

// silentLook is how long a sidecar may leave a question unanswered before somebody looks
// whether its process is stopped, and the time from one look to the next.
const silentLook = 200 * time.Millisecond

// pidFile is the file in a pod's folder that names its sidecar's process.
const pidFile = "sidecar.pid"

// stoppedError says that a sidecar cannot answer before it goes on.
type stoppedError struct{ pid int }

func (e *stoppedError) Error() string {
	return fmt.Sprintf("nothing is known of its ranks: the process of its sidecar, %d, is stopped by a signal (SIGSTOP); kill -CONT %[1]d lets it go on", e.pid)
}

// fetchUnlessStopped is fetch that ends when the sidecar's process is stopped: its kernel
// takes the question, and nobody answers.
func fetchUnlessStopped(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		look := time.NewTicker(silentLook)
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

// sidecarOf is the process of the sidecar with that metrics socket; 0: nobody knows.
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

// seemsStopped reports whether a process, which need not be a child of this one, is
// stopped by a signal (proc_pid_stat(5), state T). In another PID namespace none is.
func seemsStopped(pid int) bool {
	if pid <= 0 {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false // it has ended
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // behind the name, which is in parentheses
	return len(fields) > 0 && string(fields[0]) == "T"
}
