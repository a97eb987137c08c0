package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// lateMax is the number of repetitions and probes after which an acknowledgement is late: one may
// have been lost.
const lateMax = 1

// Answers reports whether the kernel of a connected peer's machine has acknowledged what this
// side's kernel has sent to it, whether the peer's process reads or not.
func (l *Link) Answers(peer link.Peer) bool {
	c := l.conns[peer]
	return c != nil && c.err == nil && c.fd >= 0 && Acknowledged(c.fd)
}

// recentMax is the age of the last data sent, in milliseconds, up to which its acknowledgement proves
// something. Heartbeats follow each other sooner.
const recentMax = 4500

// Acknowledged reports whether fd is a TCP connection without a late acknowledgement, on which data
// was sent lately or is under way: an idle connection proves nothing.
func Acknowledged(fd int) bool {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && i.State == stateEstablished && i.Retransmits <= lateMax && i.Probes <= lateMax &&
		(i.Unacked > 0 || i.Notsent_bytes > 0 || i.Last_data_sent < recentMax)
}

// stateEstablished is TCP_ESTABLISHED of linux/include/net/tcp_states.h.
const stateEstablished = 1
