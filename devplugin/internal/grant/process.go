package grant

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// process is the one that connected, held by a pidfd so that its number cannot
// come to mean another one unnoticed.
type process struct {
	pid int
	fd  int
}

// errForeignPID means that the caller's process is not visible.
var errForeignPID = errors.New("the caller is outside of the agent's PID namespace; run the agent with hostPID: true")

// peer finds the process behind a connection, as it was when it connected
// (unix(7), SO_PEERCRED and SO_PEERPIDFD). Kernels before 6.5 have no
// SO_PEERPIDFD; there a process that connects, dies, and whose number is given
// to another one before the agent looks, is taken for the other.
func peer(conn *net.UnixConn) (*process, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var p *process
	var found error
	if err := raw.Control(func(fd uintptr) { p, found = peerOf(int(fd)) }); err != nil {
		return nil, err
	}
	return p, found
}

// pidOf is the number of the process at the other end.
func pidOf(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var found error
	if err := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, found = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); found == nil {
			pid = int(cred.Pid)
		}
	}); err != nil {
		return 0, err
	}
	return pid, found
}

func peerOf(socket int) (*process, error) {
	cred, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("the caller's credentials: %w", err)
	}
	if cred.Pid == 0 {
		return nil, errForeignPID
	}
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) {
		fd, err = unix.PidfdOpen(int(cred.Pid), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("the caller's process: %w", err)
	}
	return &process{pid: int(cred.Pid), fd: fd}, nil
}

// alive says whether the process still has its number. What was learnt by
// number counts only when the process is alive afterwards. A pidfd is readable
// when its process has ended (pidfd_open(2)); asking so needs no capability,
// where a signal 0 to another user's process needs CAP_KILL.
func (p *process) alive() error {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("looking whether the caller is alive: %w", err)
		case n != 0:
			return errors.New("the caller has gone")
		default:
			return nil
		}
	}
}

func (p *process) close() error { return unix.Close(p.fd) }

// Memory is the kernel's limit of locked memory.
type Memory struct{}

// Raise sets the limit of a process to n bytes, soft and hard, and never
// lowers either (prlimit(2), RLIMIT_MEMLOCK). It gives the soft limit that
// holds then.
func (Memory) Raise(pid int, n uint64) (uint64, error) {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &now); err != nil {
		return 0, fmt.Errorf("reading the limit of locked memory: %w", explain(err))
	}
	want := unix.Rlimit{Cur: max(now.Cur, n), Max: max(now.Max, n)}
	if want == now {
		return now.Cur, nil
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &want, nil); err != nil {
		return 0, fmt.Errorf("raising the limit of locked memory from %d to %d bytes: %w", now.Cur, n, explain(err))
	}
	return want.Cur, nil
}

// explain says what is missing: the same capability for another user's limit,
// be it only to read it, and for a hard limit.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w; the agent needs CAP_SYS_RESOURCE", err)
	}
	return err
}
