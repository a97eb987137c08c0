package wake

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// NewDoorbell returns an eventfd. The engine waits for its edges (EPOLLET): each write is one,
// whatever the value of the counter, so the engine need not read it. A read could block, because the
// flag O_NONBLOCK is shared with every process that has the descriptor.
func NewDoorbell() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("wake: eventfd: %w", err)
	}
	return fd, nil
}

// Ring rings the doorbell fd.
func Ring(fd int) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], 1)
	for {
		_, err := unix.Write(fd, b[:])
		switch {
		case err == nil, errors.Is(err, unix.EAGAIN): // a full counter has rung the bell already
			return nil
		case errors.Is(err, unix.EINTR):
		default:
			return fmt.Errorf("wake: ringing: %w", err)
		}
	}
}
