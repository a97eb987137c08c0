package tcp

import (
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// A job of more than memory.ManyConns pods has small buffers in the kernel and here for each
// connection to another machine, because a sidecar's memory has to suffice for all of them at once. A connection
// that moves much gets larger ones, of which there are memory.WideConns: a place of a connection
// that has become silent is taken for another.

// wideAfter is the number of bytes that a connection has to move to be widened: it outweighs the
// system calls by far.
const wideAfter = 1 << 20

// streamRoom returns the size of the output buffer of a connection.
func streamRoom(peers int) int {
	if peers > memory.ManyConns {
		return farStream
	}
	return streamBytes
}

// narrow gives the connection small buffers.
func (c *conn) narrow() {
	setBuffers(c.fd, memory.ConnBuffer)
	c.moved, c.widenAt = 0, wideAfter
}

// widen gives the connection large buffers, if a place is free or that of a silent connection.
func (l *Link) widen(c *conn) {
	c.moved = 0
	if len(l.wide) == memory.WideConns {
		i := slices.IndexFunc(l.wide, func(c *conn) bool { return !c.inUse })
		if i < 0 {
			return // asked again after as many bytes
		}
		l.wide[i].narrow()
		l.wide = slices.Delete(l.wide, i, i+1)
	}
	l.wide = append(l.wide, c)
	c.widenAt = math.MaxInt
	setBuffers(c.fd, memory.WideBuffer)
}

// count counts bytes that the connection has moved.
func (c *conn) count(n int) {
	if c.moved += n; c.moved >= c.widenAt {
		c.link.widen(c)
	}
}

// setBuffers sets the kernel's buffers of a connection, in each direction. The kernel limits them
// to net.core.rmem_max and wmem_max.
func setBuffers(fd, bytes int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bytes)
}
