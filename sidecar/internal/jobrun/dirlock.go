package jobrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is the file in a job's directory on which the job holds a lock. The sidecars and
// launchers inherit the lock: if `outrigger run` is killed, they remove their sockets and
// end their ranks after it has ended. The file stays: if it were removed, two jobs could
// each lock a file of that name.
const lockFile = "job.lock"

// Bounds of the wait for the end of a job whose `outrigger run` was killed: its sidecars
// and launchers use their grace.
const (
	leftoverTime  = grace + 2*time.Second
	leftoverPause = 10 * time.Millisecond
	ownerBytes    = 4096 // bytes of the lock file that are read
)

// owner identifies the job that holds a directory's lock, as stored in the file.
type owner struct {
	Name string `json:"name"`
	PID  int    `json:"pid"` // process ID of the program that runs the job
}

// lockDir locks a job's directory for the job called name. The lock ends when this process
// has closed the file and the processes that have inherited it have ended.
func lockDir(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("job directory: lock: %w", err)
	}
	for begun := time.Now(); ; time.Sleep(leftoverPause) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		of := readOwner(f)
		ended := of.PID > 0 && errors.Is(unix.Kill(of.PID, 0), unix.ESRCH)
		if !ended || time.Since(begun) > leftoverTime {
			return nil, errors.Join(of.refusal(dir, ended), f.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("job directory: %s cannot be locked: %w: choose a directory of a file system of this machine", dir, err), f.Close())
	}
	b, err := json.Marshal(owner{name, os.Getpid()})
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(b, 0)
		}
	}
	_ = err // the lock is held; only the text of another job's refusal lacks the name
	return f, nil
}

// readOwner reads which job holds the lock. It returns the zero owner if the name is not
// known, as between the lock and the writing of the name.
func readOwner(f *os.File) (of owner) {
	if json.NewDecoder(io.NewSectionReader(f, 0, ownerBytes)).Decode(&of) != nil {
		return owner{}
	}
	return of
}

// refusal returns the error for another job that needs the directory.
func (o owner) refusal(dir string, ended bool) error {
	if where, err := filepath.Abs(dir); err == nil {
		dir = where
	}
	switch {
	case o.PID <= 0:
		return fmt.Errorf("job directory: %s is that of another job, which runs: choose another directory", dir)
	case ended:
		return fmt.Errorf("job directory: %s is that of job %s, whose process %d has ended and whose sidecars or launchers have not: end them, or choose another directory", dir, o.Name, o.PID)
	}
	return fmt.Errorf("job directory: %s is that of job %s (process %d), which runs: wait for its end, or choose another directory", dir, o.Name, o.PID)
}
