package mpi

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
)

// port offers PMI-1 by PMI_PORT: a port on the pod's loopback, for programs that are
// started by a program that closes the descriptor of PMI_FD. It relays the bytes to the
// sidecar's process management.
type port struct {
	listener *net.TCPListener
	socket   string
	slots    chan struct{} // one token for each connection that is relayed
	wg       sync.WaitGroup

	reports rate.Sometimes
	report  func(error)

	mu    sync.Mutex
	conns map[net.Conn]bool // nil: the port is closed
}

// portSlots bounds the connections that are relayed at once; a rank has one.
const portSlots = 2048

// listenPort opens the port.
func listenPort(socket string, report func(error)) (*port, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("a port for PMI: %w", err)
	}
	p := &port{listener: l, socket: socket, slots: make(chan struct{}, portSlots), conns: map[net.Conn]bool{}, reports: rate.Sometimes{First: reportsFirst, Interval: time.Minute}, report: report}
	p.wg.Go(p.serve)
	return p, nil
}

// variables returns the variables of a rank.
func (p *port) variables(rank int) []string {
	return []string{"PMI_PORT=" + p.listener.Addr().String(), "PMI_ID=" + strconv.Itoa(rank)}
}

// reportsFirst is how many failed connections are reported before the reports are
// limited to one a minute: any process of the network namespace can connect at any rate,
// and the reports are part of the job's output.
const reportsFirst = 4

func report(err error) { fmt.Fprintln(os.Stderr, "outrigger-launch: PMI port:", err) }

func (p *port) serve() {
	for {
		conn, err := admission.Accept(p.listener.AcceptTCP, p.report)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.report(err)
			return
		}
		select {
		case p.slots <- struct{}{}:
			p.wg.Go(func() {
				defer func() { <-p.slots }()
				if err := p.relay(conn); err != nil {
					p.reports.Do(func() { p.report(err) })
				}
			})
		default:
			_ = conn.Close() // nothing was sent to it
		}
	}
}

// relay joins a rank's connection with one of the sidecar until one of them ends.
func (p *port) relay(rank *net.TCPConn) error {
	defer p.untrack(rank)
	if !p.track(rank) {
		return nil
	}
	if err := sameUser(rank); err != nil {
		return err
	}
	d := net.Dialer{Timeout: exchangeTimeout}
	sidecar, err := d.Dial("unix", p.socket)
	if err != nil {
		return fmt.Errorf("process management of the sidecar: %w", err)
	}
	defer p.untrack(sidecar)
	if !p.track(sidecar) {
		return nil
	}
	p.wg.Go(func() {
		_, _ = io.Copy(sidecar, rank) // if either direction ends, both connections are closed
		_ = sidecar.SetReadDeadline(time.Unix(1, 0))
	})
	_, _ = io.Copy(rank, sidecar) // as above
	return nil
}

// track keeps a connection for close. It reports false if the port is closed.
func (p *port) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *port) untrack(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close() // the other end notices
}

// close ends all connections. p may be nil.
func (p *port) close() error {
	if p == nil {
		return nil
	}
	err := p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close() // its goroutines end
	}
	p.conns = nil
	p.mu.Unlock()
	p.wg.Wait()
	return err
}

// socketTable is where the kernel lists the TCP sockets of this network namespace, with
// their owners (proc_net_tcp.txt).
const socketTable = "/proc/net/tcp"

// sameUser refuses connections of other users: a port, unlike the sidecar's socket, has no
// peer credentials.
func sameUser(c *net.TCPConn) error {
	table, err := os.ReadFile(socketTable)
	if err != nil {
		return fmt.Errorf("reading the user of the connection: %w", err)
	}
	theirs, ours := c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()
	uid, ok := ownerOf(string(table), theirs, ours)
	switch {
	case !ok:
		return fmt.Errorf("the connection of %v is gone", theirs)
	case uid != unix.Geteuid():
		return fmt.Errorf("refused: the connection of %v is of user %d, and the ranks are of user %d", theirs, uid, unix.Geteuid())
	}
	return nil
}

// ownerOf returns the user of the socket from local to remote in the kernel's table.
func ownerOf(table string, local, remote netip.AddrPort) (uid int, ok bool) {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) < 8 || words[1] != kernelAddress(local) || words[2] != kernelAddress(remote) {
			continue
		}
		uid, err := strconv.Atoi(words[7])
		return uid, err == nil
	}
	return 0, false
}

// kernelAddress formats an address as in the table: the four bytes as a number of this
// machine, which is little-endian on all supported machines, and the port.
func kernelAddress(a netip.AddrPort) string {
	b := a.Addr().Unmap().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", b[3], b[2], b[1], b[0], a.Port())
}
