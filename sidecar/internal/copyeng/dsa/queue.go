package dsa

import "golang.org/x/sys/unix"

// Queue is an open work queue.
type Queue interface {
	// Write submits descriptors of 64 bytes each, and returns the bytes of those that the queue
	// has taken, the first ones. It does not block: EAGAIN says that the queue is full.
	Write(descriptors []byte) (int, error)
	// Failed reports whether the device has reported an error. The error may be that of another
	// process, and stays reported.
	Failed() bool
	// Close returns when the device has no descriptor of this process.
	Close() error
}

// File is a Queue by the descriptor of a device file.
type File struct {
	FD int
}

// openFile opens a device file. The kernel binds it to this process's address space: it serves
// no other process.
func openFile(name string) (Queue, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return File{FD: fd}, nil
}

// Write implements Queue.
func (f File) Write(descriptors []byte) (int, error) { return unix.Write(f.FD, descriptors) }

// Failed implements Queue. The driver reports an error as input (idxd_cdev_poll).
func (f File) Failed() bool {
	p := []unix.PollFd{{Fd: int32(f.FD), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents != 0
}

// Close implements Queue.
func (f File) Close() error { return unix.Close(f.FD) }
