package mpi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// shared is the file system for memory that processes share.
const shared = "/dev/shm"

// sharedNeed is the free space that each pod needs there: Open MPI 4.1 takes a little more
// than 8 MiB at the start for PMIx, and its windows take more. A process that touches more
// memory than there is ends by SIGBUS.
const sharedNeed = 16 << 20

// Prefixes of the directories of a pod's processes.
const (
	prefixPMIx   = "outrigger-pmix-"
	prefixMPIRun = "outrigger-mpirun-"
)

// folderLock is the suffix of the file next to such a directory on which the process that
// makes the directory holds a lock. The lock is held before the directory exists and until
// it is removed, so that a directory of a process that was killed at any time has an
// unlocked file.
const folderLock = ".lock"

// folder is a directory for memory that the processes of a pod share as files.
type folder struct {
	path string
	lock *os.File
}

// sharedFolder makes a directory in memory for files that the processes of a pod share, or
// in TMPDIR if there is no /dev/shm, or not enough of it for all pods of this machine. It
// first removes the directories that killed processes of this user have left.
func sharedFolder(prefix string, pods int) (*folder, error) {
	for _, in := range []string{shared, os.TempDir()} {
		removeLeftovers(in)
	}
	if free(shared) >= uint64(pods)*sharedNeed {
		if f, err := makeFolder(shared, prefix); err == nil {
			return f, nil
		}
	}
	f, err := makeFolder("", prefix)
	if err == nil && free(f.path) < sharedNeed {
		err = errors.Join(unix.ENOSPC, f.remove())
	}
	if err != nil {
		return nil, fmt.Errorf("a folder for memory that ranks share: %w; the container needs a %s of %d MiB for each pod, or as much in TMPDIR, by default /tmp", err, shared, sharedNeed>>20)
	}
	return f, nil
}

// folderTries bounds the attempts to make a directory: another process may take the lock
// file for a leftover between its creation and its lock.
const folderTries = 16

func makeFolder(in, prefix string) (f *folder, err error) {
	for range folderTries {
		lock, failed := os.CreateTemp(in, prefix+"*"+folderLock)
		if failed != nil {
			return nil, failed
		}
		if err = lockNamed(lock); errors.Is(err, errLockless) {
			return nil, errors.Join(err, os.Remove(lock.Name()), lock.Close())
		}
		if err != nil {
			err = errors.Join(err, lock.Close())
			continue
		}
		f = &folder{strings.TrimSuffix(lock.Name(), folderLock), lock}
		if err = os.Mkdir(f.path, 0o700); err == nil {
			return f, nil
		}
		// Another process has made the directory: only the lock file is removed.
		if err = errors.Join(err, os.Remove(lock.Name()), lock.Close()); !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, err
}

// errLockless means that a file system has no locks: no other process has taken the file.
var errLockless = errors.New("the file system has no locks")

// lockNamed locks a file and checks that its name still refers to it. Only the process that
// holds the lock may remove the file, so that the name refers to it until then.
func lockNamed(lock *os.File) error {
	switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, unix.EINTR):
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	case err != nil:
		return fmt.Errorf("%w: locking %s: %w", errLockless, lock.Name(), err)
	}
	have, err := lock.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(lock.Name())
	if err == nil && !os.SameFile(have, named) {
		err = fmt.Errorf("%s was replaced", lock.Name())
	}
	return err
}

// remove removes the directory.
func (f *folder) remove() error {
	return errors.Join(os.RemoveAll(f.path), os.Remove(f.lock.Name()), f.lock.Close())
}

// removeLeftovers removes directories whose process has ended without doing so.
func removeLeftovers(in string) {
	for _, prefix := range []string{prefixPMIx, prefixMPIRun} {
		paths, err := filepath.Glob(filepath.Join(in, prefix+"*"+folderLock))
		if err != nil {
			continue
		}
		for _, path := range paths {
			if !ours(path, unix.S_IFREG) {
				continue
			}
			lock, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
			if err != nil {
				continue
			}
			if lockNamed(lock) != nil {
				_ = lock.Close() // its process lives
				continue
			}
			f := &folder{strings.TrimSuffix(path, folderLock), lock}
			if _, err := os.Lstat(f.path); err == nil && !ours(f.path, unix.S_IFDIR) {
				_ = lock.Close() // another user's directory of that name
				continue
			}
			_ = f.remove() // the next run tries again
		}
	}
}

// ours reports whether path is a file of a kind that belongs to this user.
func ours(path string, kind uint32) bool {
	var s unix.Stat_t
	err := unix.Lstat(path, &s)
	return err == nil && s.Mode&unix.S_IFMT == kind && int(s.Uid) == os.Geteuid()
}

// free returns the free bytes of a file system, or 0 if there is none.
func free(path string) uint64 {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize)
}

// here returns how many pods share this machine, as far as their addresses show.
func (p *position) here() int {
	if p.machines < len(p.layout) {
		return len(p.layout)
	}
	return 1
}

// sharing returns the variables that make Open MPI's windows keep the memory that the ranks
// of a pod share in the pod's own directory. The names of the files contain the host's name
// and the number of the job, which pods on one machine have in common.
func sharing(folder string) []string {
	return []string{"OMPI_MCA_osc_rdma_backing_directory=" + folder, "OMPI_MCA_osc_sm_backing_directory=" + folder}
}
