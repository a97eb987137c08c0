package launch

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedMemory is the file system of the memory that processes share.
const sharedMemory = "/dev/shm"

// sharedLow is how little of it is left when a process has used it up: MPIs take it by
// segments of a MiB and more.
const sharedLow = 1 << 20

// hint is what may have caused a signal, and what to do; empty: nothing is known. SIGBUS comes
// of touching shared memory that its file system has not got. dir is that file system.
func hint(s syscall.Signal, dir string) string {
	var fs unix.Statfs_t
	if s != unix.SIGBUS || unix.Statfs(dir, &fs) != nil {
		return ""
	}
	return full(dir, fs.Blocks*uint64(fs.Bsize), fs.Bavail*uint64(fs.Bsize))
}

// full is the hint of a file system of a size with so many free bytes; empty: it is not full.
func full(dir string, size, free uint64) string {
	if free >= max(sharedLow, size/64) {
		return ""
	}
	return fmt.Sprintf("%s is full (%d KiB of %d MiB are free), and shared memory that it has no room for ends a process by SIGBUS when it is touched: give it more (memory.shm of an MPIJob; --shm-size of a container's command)", dir, free>>10, size>>20)
}
