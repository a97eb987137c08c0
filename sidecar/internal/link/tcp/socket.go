package tcp

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// tune sets the options of a connection for messages. A socket that is not TCP, such as
// one of a socket pair, has none of these options and needs none.
func (c *conn) tune() {
	fd := c.fd
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	// Data in the socket cannot be overtaken either. It is enough that the kernel has
	// data to send until the next turn.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentMax)
	large := len(c.link.conns) > memory.ManyConns
	switch {
	case sameMachine(fd):
		// There is no congestion inside a machine, but BBR, a common default, paces the
		// data: measured over loopback, 1 MiB messages went at 3.3 GB/s with it and at
		// 8.9 GB/s without. Reno is in every kernel and allowed for every user.
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		// The kernel's automatic tuning takes the pause between two messages for the
		// round trip, and leaves the window at 64 KiB for seconds: 1 MiB then takes 570
		// us instead of 135 us.
		window := nearWindow
		if large {
			window = nearFarWindow
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, window)
	case !large:
	case longSegments(fd):
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, nearFarWindow)
	default:
		c.narrow() // the kernel would allow each of thousands of connections megabytes
	}
}

// unsentMax bounds the data that the kernel has accepted of a connection and not sent.
const unsentMax = 128 << 10

// nearWindow is the receive buffer of a connection within a machine. The data in flight
// should stay in the caches of two cores: with 2 MiB, a receiver that fell behind once
// stayed behind, at 2 GB/s instead of 7 GB/s, because every page came from memory. The
// kernel limits it to net.core.rmem_max.
const nearWindow = 512 << 10

// nearFarWindow is the same in a large job, and for networks with segments of 64 KiB (IPoIB in
// connected mode). A window of less than a segment makes the sender wait for delayed
// acknowledgements: 640 KiB then took 44 ms at times over loopback.
const nearFarWindow = 128 << 10

// longSegments reports whether the small buffers of a large job hold less than two segments of the
// connection.
func longSegments(fd int) bool {
	n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	return err == nil && n > memory.ConnBuffer/2
}

// sameMachine reports whether both sides of a connection have the same address.
func sameMachine(fd int) bool {
	local, err1 := unix.Getsockname(fd)
	remote, err2 := unix.Getpeername(fd)
	if err1 != nil || err2 != nil {
		return false
	}
	a, b := address(local), address(remote)
	return a != nil && slices.Equal(a, b)
}

func address(sa unix.Sockaddr) []byte {
	switch x := sa.(type) {
	case *unix.SockaddrInet4:
		return x.Addr[:]
	case *unix.SockaddrInet6:
		return x.Addr[:]
	}
	return nil
}
