package wake

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// NewDoorbell makes an eventfd. Whoever is woken by it waits for its edges: every
// ring is one, whatever the counter says, and nobody has to read it. A read could
// block, since the flag that forbids it is shared with whoever has the descriptor.
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
		case err == nil, errors.Is(err, unix.EAGAIN): // a full counter is a rung bell
			return nil
		case errors.Is(err, unix.EINTR):
		default:
			return fmt.Errorf("wake: ringing: %w", err)
		}
	}
}
