package grant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// makingMax bounds the threads that make sockets at a time.
const makingMax = 4

// sendBuffer is how much a socket may have on its way to the network, in bytes: what a link of
// 100 Gb/s sends in 0.3 ms. Without CAP_NET_ADMIN the kernel gives at most net.core.wmem_max.
const sendBuffer = 4 << 20

// PacketSockets is the Sockets of the kernel. It needs CAP_SYS_ADMIN, to enter a network
// namespace, and CAP_NET_RAW, to make a packet socket in it.
type PacketSockets struct {
	proc   string
	own    identity
	making chan struct{} // one element per thread that makes a socket
}

// NewPacketSockets returns the Sockets of the kernel. proc is the proc file system with the
// callers' processes, in which the agent needs the node's PID namespace.
func NewPacketSockets(proc string) (*PacketSockets, error) {
	own, err := ownNamespace()
	return &PacketSockets{proc: proc, own: own, making: make(chan struct{}, makingMax)}, err
}

// SocketProblems returns why this process may make no packet sockets; nothing if it may.
func SocketProblems() []string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return []string{"the agent's capabilities are not known: " + err.Error()}
	}
	var missing []string
	for _, c := range []struct {
		number int
		name   string
	}{{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}, {unix.CAP_NET_RAW, "CAP_NET_RAW"}} {
		if sets[c.number/32].Effective>>(c.number%32)&1 == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []string{"the agent has no " + strings.Join(missing, " and no ") + " (devicePlugin.grant.rawEthernet of the chart)"}
}

// Make implements Sockets. If the context ends first, the thread ends by itself, and closes what
// it has made.
func (p *PacketSockets) Make(ctx context.Context, r SocketRequest) (*PacketSocket, error) {
	if err := checkNamespace(r.Namespace, p.own); err != nil {
		return nil, err
	}
	busy := errors.New("the agent did not make the socket in time: the node's network is being configured, or many callers ask; try again")
	select {
	case p.making <- struct{}{}:
	case <-ctx.Done():
		return nil, busy
	}
	// The caller of Make may close its descriptor before the thread ends.
	namespace, err := unix.FcntlInt(r.Namespace.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		<-p.making
		return nil, fmt.Errorf("the caller's network namespace: %w", err)
	}
	type result struct {
		socket *PacketSocket
		err    error
	}
	made := make(chan result)
	onOwnThread(func() {
		socket, err := p.enter(namespace, &r)
		_ = unix.Close(namespace)
		<-p.making
		select {
		case made <- result{socket, err}:
		case <-ctx.Done():
			if err == nil {
				_ = socket.File.Close() // no caller has it
			}
		}
	})
	select {
	case m := <-made:
		return m.socket, m.err
	case <-ctx.Done():
		return nil, busy
	}
}

// onOwnThread calls do on a thread that ends afterwards, so that no other goroutine runs in
// another network namespace. The main thread does not end: if the runtime chooses it, it is kept
// busy while another thread does the work.
func onOwnThread(do func()) {
	go func() {
		runtime.LockOSThread() // not unlocked, so that the thread ends with its goroutine
		if unix.Gettid() != unix.Getpid() {
			do()
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // as above
			do()
		}()
		<-done
		runtime.UnlockOSThread()
	}()
}

// enter makes the socket in a network namespace, of which the thread is a member from then on.
func (p *PacketSockets) enter(namespace int, r *SocketRequest) (*PacketSocket, error) {
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		return nil, explainSocket("entering the caller's network namespace", err)
	}
	// The protocol 0 receives nothing until the socket is bound.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, explainSocket("making a packet socket", err)
	}
	s, err := p.prepare(fd, r)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	s.File = os.NewFile(uintptr(fd), "packet socket")
	return s, nil
}

// explainSocket adds what the agent lacks to an error.
func explainSocket(what string, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%s: %w; the agent needs CAP_SYS_ADMIN and CAP_NET_RAW (devicePlugin.grant.rawEthernet of the chart)", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// prepare checks where a socket is, and binds it to the interface. The filter is locked before
// the socket receives anything.
func (p *PacketSockets) prepare(fd int, r *SocketRequest) (*PacketSocket, error) {
	if err := checkPlace(p.proc, fd, r.PID); err != nil {
		return nil, err
	}
	i, err := chooseInterface(fd, r.Interface)
	if err != nil {
		return nil, err
	}
	if err := lockFilter(fd); err != nil {
		return nil, fmt.Errorf("the filter of the packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return nil, fmt.Errorf("PACKET_IGNORE_OUTGOING: %w; the agent needs Linux 4.20 or later", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) != nil { // without CAP_NET_ADMIN
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer); err != nil {
			return nil, fmt.Errorf("the send buffer of the packet socket: %w", err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: i.index, Protocol: networkOrder(grant.EtherType)}); err != nil {
		return nil, fmt.Errorf("binding the packet socket to %s: %w", i.name, err)
	}
	address, err := addressOf(fd)
	if err != nil {
		return nil, fmt.Errorf("the address of %s: %w", i.name, err)
	}
	return &PacketSocket{Interface: i.name, Index: i.index, Address: address.String(), MTU: i.mtu}, nil
}
