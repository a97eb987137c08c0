package grant

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the answer to ether. The least MTU is that of IPv4 (RFC 791), and the largest is
// that of veth.
const (
	interfaceMax = 15 // bytes in the name of an interface (Linux, IFNAMSIZ)
	addressMax   = 17 // bytes in the text of an Ethernet address
	mtuMin       = 68
	mtuMax       = 65535
)

// ErrOlderAgent is wrapped by the error of a request that an agent of an earlier version does
// not know.
var ErrOlderAgent = errors.New("the agent is of an earlier version than this program; update outrigger-devplugin on this node")

// Socket is a packet socket (packet(7)) of the type SOCK_DGRAM, bound to an Ethernet interface
// of this process's network namespace. It is non-blocking. It receives the frames of EtherType
// whose destination is the interface's address, behind a filter that cannot be removed.
type Socket struct {
	// FD is the descriptor. It belongs to the receiver, which closes it. It is no os.File,
	// since the runtime's poller would wake at each frame.
	FD        int
	Interface string
	Index     int              // number of the interface
	Address   net.HardwareAddr // of the interface, 6 bytes
	MTU       int              // bytes of payload that a frame can carry
}

// Close closes the descriptor.
func (s *Socket) Close() error { return unix.Close(s.FD) }

// Ether returns a packet socket for the interface that the administrator has chosen, in this
// process's network namespace (§3.6). The error is a Refused if the agent does not give one,
// and wraps ErrOlderAgent if the agent has no packet sockets. Such an agent ends the connection:
// if the connection is needed afterwards, as after Join, make the request on another one.
func (c *Client) Ether(ctx context.Context) (*Socket, error) {
	namespace, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("this process's network namespace: %w", err)
	}
	defer namespace.Close()
	m, f, err := c.ask(ctx, &Message{Op: Ether}, namespace)
	switch {
	case isUnknownOp(err):
		return nil, fmt.Errorf("%w: %w", err, ErrOlderAgent)
	case err != nil:
		return nil, err
	case f == nil:
		return nil, errors.New("the node's agent answered ether without a descriptor")
	}
	s, err := socketOf(m, f)
	_ = f.Close() // the socket has a descriptor of its own
	return s, err
}

// isUnknownOp reports whether an agent does not know the operation. Parse of every version
// begins its error with these words.
func isUnknownOp(err error) bool {
	var r *Refused
	return errors.As(err, &r) && strings.Contains(r.Cause, fmt.Sprintf("unknown operation %q", r.Op))
}

// socketOf returns the socket of an answer, with a descriptor of its own.
func socketOf(m *Message, f *os.File) (*Socket, error) {
	address, err := net.ParseMAC(m.Address)
	if err != nil || len(address) != 6 || m.Interface == "" || len(m.Interface) > interfaceMax || m.Index <= 0 || m.MTU < mtuMin || m.MTU > mtuMax {
		return nil, fmt.Errorf("the node's agent answered ether with the interface %q, number %d, address %q, MTU %d, which is not an Ethernet interface", m.Interface, m.Index, m.Address, m.MTU)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Socket{FD: -1, Interface: m.Interface, Index: m.Index, Address: address, MTU: m.MTU}
	if controlErr := raw.Control(func(fd uintptr) { s.FD, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); controlErr != nil || err != nil {
		return nil, fmt.Errorf("the descriptor of the packet socket: %w", errors.Join(controlErr, err))
	}
	if err := unix.SetNonblock(s.FD, true); err != nil { // Receive has made it blocking
		return nil, errors.Join(fmt.Errorf("the descriptor of the packet socket: %w", err), s.Close())
	}
	return s, nil
}
