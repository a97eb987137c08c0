package grant

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// process is a connected process. A pidfd holds it, so that a reuse of its number is
// noticed.
type process struct {
	pid int
	fd  int
}

// errForeignPID: the caller's process is not visible.
var errForeignPID = errors.New("the caller is outside of the agent's PID namespace; run the agent with hostPID: true")

// peer returns the process that made a connection (unix(7), SO_PEERCRED and
// SO_PEERPIDFD). Kernels before 6.5 have no SO_PEERPIDFD; there, if a process connects
// and ends, and its number is reused before the agent reads it, the new process is
// taken for the caller.
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

// pidOf returns the number of the process at the other end.
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

// alive returns an error if the process has ended. Information that was read by number
// is valid only if the process is alive afterwards. A pidfd is readable when its
// process has ended (pidfd_open(2)). Polling it needs no capability; signal 0 to
// another user's process would need CAP_KILL.
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

// Memory is the Limiter for the kernel's limit of locked memory.
type Memory struct{}

// Raise raises the soft and the hard limit of a process to n bytes, and never lowers
// them (prlimit(2), RLIMIT_MEMLOCK). It returns the soft limit after that.
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

// explain adds the missing capability to an error. Reading or setting the limit of
// another user's process, and raising a hard limit, need the same one.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w; the agent needs CAP_SYS_RESOURCE", err)
	}
	return err
}
