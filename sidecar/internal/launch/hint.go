package launch

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedMemory is the file system of the memory that processes share.
const sharedMemory = "/dev/shm"

// sharedLow is the free space, in bytes, below which the file system counts as full: MPIs allocate
// segments of a MiB and more.
const sharedLow = 1 << 20

// hint returns a possible cause of a signal and a remedy, or an empty text. A process gets SIGBUS when
// it touches shared memory for which its file system, dir, has no room.
func hint(s syscall.Signal, dir string) string {
	var fs unix.Statfs_t
	if s != unix.SIGBUS || unix.Statfs(dir, &fs) != nil {
		return ""
	}
	return full(dir, fs.Blocks*uint64(fs.Bsize), fs.Bavail*uint64(fs.Bsize))
}

// full returns the hint for a file system with the given size and free bytes, or an empty text if it
// is not full.
func full(dir string, size, free uint64) string {
	if free >= max(sharedLow, size/64) {
		return ""
	}
	return fmt.Sprintf("%s is full (%d KiB of %d MiB are free), and shared memory that it has no room for ends a process by SIGBUS when it is touched: give it more (memory.shm of an MPIJob; --shm-size of a container's command)", dir, free>>10, size>>20)
}
