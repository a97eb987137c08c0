package outlet

import (
	"os"

	"golang.org/x/sys/unix"
)

// Buffered returns how many bytes a pipe holds.
func Buffered(pipe *os.File) int {
	n := 0
	raw, err := pipe.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	if err != nil {
		return 0 // it cannot be read either
	}
	return n
}
