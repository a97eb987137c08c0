package mpi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// shared is where memory is kept that processes share.
const shared = "/dev/shm"

// sharedNeed is what each pod must find there: Open MPI 4.1 takes a little more than 8 MiB at the
// start for PMIx, and its windows take more. A process that touches more than there is ends by
// SIGBUS.
const sharedNeed = 16 << 20

// Prefixes of the folders of a pod's processes.
const (
	prefixPMIx   = "outrigger-pmix-"
	prefixMPIRun = "outrigger-mpirun-"
)

// folderLock is a file in such a folder, which the process that made the folder holds a lock
// on. A process that is killed removes nothing, and its lock ends with it.
const folderLock = "lock"

// folder is memory that the processes of a pod share, as files.
type folder struct {
	path string
	lock *os.File
}

// sharedFolder makes a folder in memory for what the processes of a pod share, or one in TMPDIR
// where there is no /dev/shm, or not enough of it for all pods of this machine. It removes
// first what killed processes of this user have left.
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
	if err != nil {
		return nil, fmt.Errorf("a folder for memory that ranks share: %w; the container needs a %s of %d MiB for each pod, or a /tmp that it may write to, or TMPDIR", err, shared, sharedNeed>>20)
	}
	return f, nil
}

// folderTries bounds how often a folder is made again that another process has taken for a
// leftover, between its making and its lock.
const folderTries = 16

func makeFolder(in, prefix string) (f *folder, err error) {
	for range folderTries {
		path, failed := os.MkdirTemp(in, prefix)
		if failed != nil {
			return nil, failed
		}
		var lock *os.File
		if lock, err = lockFolder(path, os.O_CREATE); err == nil {
			f = &folder{path, lock}
			if _, err = os.Stat(filepath.Join(path, folderLock)); err == nil {
				return f, nil
			}
		}
		err = errors.Join(err, os.RemoveAll(path))
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
	}
	return nil, err
}

// lockFolder takes the lock of a folder; an error: another process has it, or the folder has
// none.
func lockFolder(path string, flags int) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(path, folderLock), os.O_RDWR|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// remove ends the folder.
func (f *folder) remove() error {
	return errors.Join(os.RemoveAll(f.path), f.lock.Close())
}

// removeLeftovers removes folders whose process has ended without doing so. A folder that has
// no lock yet is being made.
func removeLeftovers(in string) {
	for _, prefix := range []string{prefixPMIx, prefixMPIRun} {
		paths, err := filepath.Glob(filepath.Join(in, prefix+"*"))
		if err != nil {
			continue
		}
		for _, path := range paths {
			if !ours(path) {
				continue
			}
			if lock, err := lockFolder(path, 0); err == nil {
				_ = (&folder{path, lock}).remove() // the next run tries it again
			}
		}
	}
}

// ours reports whether a folder is this user's, and is one.
func ours(path string) bool {
	var s unix.Stat_t
	err := unix.Lstat(path, &s)
	return err == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR && int(s.Uid) == os.Geteuid()
}

// free is how many bytes a file system has; 0 where there is none.
func free(path string) uint64 {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize)
}

// here is how many pods share this machine, as far as their addresses tell.
func (p *place) here() int {
	if p.machines < len(p.layout) {
		return len(p.layout)
	}
	return 1
}

// sharing has Open MPI's windows keep the memory that the ranks of a pod share in the pod's own
// folder. The files have the name of the host and the number of the job, which pods on one
// machine have in common.
func sharing(folder string) []string {
	return []string{"OMPI_MCA_osc_rdma_backing_directory=" + folder, "OMPI_MCA_osc_sm_backing_directory=" + folder}
}
