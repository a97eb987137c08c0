package grant

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// identity is the device and the inode of a namespace.
type identity struct{ device, inode uint64 }

func identify(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, err
	}
	return identity{st.Dev, st.Ino}, nil
}

// ownNamespace returns the network namespace of this process.
func ownNamespace() (identity, error) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return identity{}, fmt.Errorf("the agent's own network namespace: %w", err)
	}
	defer f.Close()
	return identify(int(f.Fd()))
}

// checkNamespace returns an error unless a descriptor that a caller has sent is a network
// namespace, and not the agent's own. The first question must be one that only the kernel
// answers: the file may belong to a file system or to a driver that the caller runs, and which
// answers fstat or an ioctl when it likes. The link of a descriptor in /proc has a name that
// does not begin with a slash only if it is of no mounted file system (namespaces(7)).
func checkNamespace(f *os.File, own identity) error {
	fd := int(f.Fd())
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return fmt.Errorf("the caller's descriptor: %w", err)
	}
	if !strings.HasPrefix(name, "net:[") {
		return errors.New("the descriptor is not a network namespace; send that of /proc/self/ns/net")
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return errors.Join(fmt.Errorf("the descriptor is a namespace of the type %#x and not a network namespace; send that of /proc/self/ns/net, opened for reading", kind), err)
	}
	of, err := identify(fd)
	if err != nil {
		return fmt.Errorf("the caller's network namespace: %w", err)
	}
	if of == own {
		return errNodeNamespace
	}
	return nil
}

// errNodeNamespace refuses a namespace in which a socket would see the node's network.
var errNodeNamespace = errors.New("the network namespace is the node's or the agent's own; a pod with hostNetwork gets no packet socket: run it without")

// packetsMax bounds what is read of a table of packet sockets: some hundred thousand lines.
const packetsMax = 16 << 20

// hasSocket reports whether a packet socket is in the network namespace of a process
// (packet(7), /proc/net/packet). The table of each process is readable by all, while
// /proc/PID/ns/net is readable only with the right to trace the process, which the agent does
// not have.
func hasSocket(proc string, pid int, inode uint64) (bool, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "net/packet"))
	if err != nil {
		return false, err
	}
	defer f.Close()
	want := strconv.FormatUint(inode, 10)
	lines := bufio.NewScanner(io.LimitReader(f, packetsMax))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 0 && fields[len(fields)-1] == want {
			return true, nil
		}
	}
	return false, lines.Err()
}

// checkPlace returns an error unless a packet socket is in the network namespace of the
// caller, and not in the node's, which is that of process 1.
func checkPlace(proc string, fd, caller int) error {
	socket, err := identify(fd)
	if err != nil {
		return err
	}
	node, err := hasSocket(proc, 1, socket.inode)
	if err != nil {
		return fmt.Errorf("whether the network namespace is the node's: %w; the agent needs hostPID: true", err)
	}
	if node {
		return errNodeNamespace
	}
	own, err := hasSocket(proc, caller, socket.inode)
	if err != nil {
		return fmt.Errorf("whether the network namespace is the caller's: %w", err)
	}
	if !own {
		return errors.New("the network namespace is not that of the calling process; send /proc/self/ns/net")
	}
	return nil
}
