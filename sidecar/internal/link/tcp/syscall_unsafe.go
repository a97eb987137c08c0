package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// iovec is struct iovec. The owner of its memory keeps that memory alive: mapped
// segments, or the connection's own buffers.
type iovec = unix.Iovec

func vector(b []byte) iovec {
	v := iovec{Len: uint64(len(b))}
	if len(b) > 0 {
		v.Base = &b[0]
	}
	return v
}

// fill lists the unwritten pieces in vec and returns how many there are.
func (o *outgoing) fill(vec *[vectorMax]iovec) int {
	n := min(len(o.pieces)-o.first, len(vec))
	for i := range n {
		vec[i] = vector(o.pieces[o.first+i].mem)
	}
	return n
}

// The three calls below are raw: the sockets never block, so the Go scheduler need not
// know of the calls.

// ssize_t writev(int fd, const struct iovec *iov, int iovcnt)
// As with sendmsg, a broken pipe is an error and not a signal: the Go runtime ignores
// SIGPIPE on descriptors other than 1 and 2.
func writev(fd int, v []iovec) (n int, again bool, err error) {
	r, _, e := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
	return result(r, e)
}

// ssize_t readv(int fd, const struct iovec *iov, int iovcnt)
func readv(fd int, v []iovec) (n int, again bool, err error) {
	r, _, e := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
	return result(r, e)
}

// ssize_t read(int fd, void *buf, size_t count)
func read(fd int, b []byte) (n int, again bool, err error) {
	r, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return result(r, e)
}

func result(r uintptr, e unix.Errno) (int, bool, error) {
	switch {
	case e == 0:
		return int(r), false, nil
	case retry(e):
		return 0, true, nil
	}
	return 0, false, e
}
