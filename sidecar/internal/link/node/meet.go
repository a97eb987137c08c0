package node

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// meetTimeout bounds the time in which two sidecars connect through memory. It is less
// than the time of a handshake (package peers), so that sidecars that cannot meet still
// connect by the stream.
const meetTimeout = 2 * time.Second

// offer says where a sidecar is, and how to connect to it there:
//
//	0  8 bytes   offerMagic
//
// 8  32 bytes  host: a hash of the machine's boot and the network namespace
//
//	40 16 bytes  name of a local socket, in the abstract namespace
//
// 56 16 bytes  secret, which authenticates the connecting side
type offer struct {
	host   [32]byte
	name   [16]byte
	secret [16]byte
}

const (
	offerMagic = "ORNODE01"
	offerBytes = 72
)

func (o *offer) encode() []byte {
	b := append([]byte(offerMagic), o.host[:]...)
	return append(append(b, o.name[:]...), o.secret[:]...)
}

func parseOffer(b []byte) (o offer, err error) {
	if len(b) != offerBytes || string(b[:8]) != offerMagic {
		return o, errors.New("the peer offers no shared memory of this kind: use images of one release, and devices for all pods or for none")
	}
	copy(o.host[:], b[8:])
	copy(o.name[:], b[40:])
	copy(o.secret[:], b[56:])
	return o, nil
}

func (o *offer) address() *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: "@outrigger-" + hex.EncodeToString(o.name[:])}
}

// hostID returns the host of this process.
func hostID() (p [32]byte, err error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return p, err
	}
	space, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return p, err
	}
	st, ok := space.Sys().(*syscall.Stat_t)
	if !ok {
		return p, errors.New("the file of the network namespace has no inode number")
	}
	return sha256.Sum256(fmt.Appendf(boot, " %d %d", st.Dev, st.Ino)), nil
}

// Endpoint is this side of a connection that is being made. The goroutine that makes the
// connection calls Prepare, Offer and Connect; Link.Join takes the result over.
type Endpoint struct {
	boardFD  int // owned by the link
	ring     int
	mine     offer
	listener *net.UnixListener
	local    int
	seg      []byte
	dialled  bool
	board    []byte // the board of the peer
}

// refuse returns the error that ends a connection because this side cannot use the peer's
// memory. A next connection would end the same way, so Prepare fails for this peer from
// then on. The peer is reached by the stream then, and the other peers as before.
func (l *Link) refuse(peer link.Peer, cause error) error {
	if l.refusals[peer].CompareAndSwap(nil, &cause) {
		l.cfg.Log.Warn("new connections to a pod of this machine go by tcp", "peer", peer, "cause", cause)
	}
	return link.Broken(cause)
}

// Prepare returns an Endpoint that may be connected to a peer.
func (l *Link) Prepare(peer link.Peer) (*Endpoint, error) {
	if why := l.refusals[peer].Load(); why != nil {
		return nil, fmt.Errorf("node: %w", *why)
	}
	e := &Endpoint{boardFD: l.boardFD, ring: ringSize(l.cfg.Peers), local: -1}
	var err error
	if e.mine.host, err = hostID(); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	_, _ = rand.Read(e.mine.name[:]) // never fails (crypto/rand)
	_, _ = rand.Read(e.mine.secret[:])
	if e.listener, err = net.ListenUnix("unixpacket", e.mine.address()); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return e, nil
}

// Offer returns the argument of the other side's Connect.
func (e *Endpoint) Offer() []byte { return e.mine.encode() }

// errDisposalsFull means that connections of other processes prevent this one from
// sharing memory.
var errDisposalsFull = fmt.Errorf("more than %d connections of other processes to the sidecar's local socket wait to be closed; /proc/net/unix shows the connections to @outrigger-", disposalsMax)

// errOtherHost means that memory cannot be shared with a peer.
var errOtherHost = errors.New("the peer is on another machine, or in another network namespace")

// Connect makes the shared memory of the connection. raw is the other side's Offer.
func (e *Endpoint) Connect(raw []byte) error {
	theirs, err := parseOffer(raw)
	if err == nil && theirs.host != e.mine.host {
		err = errOtherHost
	}
	if err == nil {
		if e.dialled = bytes.Compare(e.mine.name[:], theirs.name[:]) < 0; e.dialled {
			err = e.dial(&theirs)
		} else {
			err = e.accept()
		}
	}
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return nil
}

// The connector sends the acceptor's secret and the bytes of the segment u64, with the
// descriptors of the segment and of its board. The acceptor answers with one byte and the
// descriptor of its own board.
const introBytes = 16 + 8

func (e *Endpoint) dial(to *offer) (err error) {
	conn, err := net.DialUnix("unixpacket", nil, to.address())
	if err != nil {
		return err
	}
	defer disposed.add(func() { _ = conn.Close() }) // socketOf has duplicated its socket
	fd, seg, err := segment.Create("sidecar-rings", segmentBytes(e.ring))
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // the mapping remains
	e.seg = seg
	if err := conn.SetDeadline(time.Now().Add(meetTimeout)); err != nil {
		return err
	}
	intro := binary.LittleEndian.AppendUint64(bytes.Clone(to.secret[:]), uint64(len(seg)))
	if _, _, err := conn.WriteMsgUnix(intro, unix.UnixRights(fd, e.boardFD), nil); err != nil {
		return err
	}
	var b [2]byte
	n, fds, err := receive(conn, b[:], 1)
	defer func() { dispose(fds...) }()
	if err == nil && n != 1 {
		err = fmt.Errorf("answer of %d bytes, want 1", n)
	}
	if err == nil {
		err = e.mapBoard(fds[0])
	}
	if err == nil {
		e.local, err = socketOf(conn)
	}
	return err
}

// accept waits for the connector. It rejects other users at once: each process of this
// network namespace may see the socket's name. The queues of such connections may hold
// descriptors, so disposed closes them; if too many wait there, accept returns an error.
func (e *Endpoint) accept() error {
	if err := e.listener.SetDeadline(time.Now().Add(meetTimeout)); err != nil {
		return err
	}
	for {
		if disposed.full() {
			return errDisposalsFull
		}
		conn, err := e.listener.AcceptUnix()
		if err != nil {
			return err
		}
		known := false
		if who, werr := admission.Credentials(conn); werr == nil && int(who.Uid) == os.Geteuid() {
			known, err = e.admit(conn)
		}
		disposed.add(func() { _ = conn.Close() }) // socketOf has duplicated its socket
		if known {
			return err
		}
	}
}

// admit receives the message of a connector. known is false if it is not the expected
// peer.
func (e *Endpoint) admit(conn *net.UnixConn) (known bool, err error) {
	if err := conn.SetDeadline(time.Now().Add(meetTimeout / 4)); err != nil {
		return false, err
	}
	var b [introBytes + 1]byte
	n, fds, err := receive(conn, b[:], 2)
	defer func() { dispose(fds...) }()
	if n != introBytes || subtle.ConstantTimeCompare(b[:16], e.mine.secret[:]) != 1 {
		return false, err
	}
	if err != nil {
		return true, err
	}
	// Both sides know the ring size of their job.
	size := segmentBytes(e.ring)
	if got := binary.LittleEndian.Uint64(b[16:]); got != uint64(size) {
		return true, fmt.Errorf("%w: %d bytes, want %d", errSegment, got, size)
	}
	if e.seg, err = segment.Open(fds[0], size); err != nil {
		return true, err
	}
	if err := e.mapBoard(fds[1]); err != nil {
		return true, err
	}
	if _, _, err := conn.WriteMsgUnix([]byte{1}, unix.UnixRights(e.boardFD), nil); err != nil {
		return true, err
	}
	e.local, err = socketOf(conn)
	return true, err
}

// mapBoard maps the peer's board.
func (e *Endpoint) mapBoard(fd int) (err error) {
	e.board, err = segment.OpenToRead(fd, 0, boardBytes)
	return err
}

// receive reads one message with want descriptors.
func receive(conn *net.UnixConn, b []byte, want int) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, k, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return 0, nil, err
	}
	fds = descriptors(oob[:k])
	if len(fds) != want {
		return n, fds, fmt.Errorf("%d descriptors, want %d: the limit of open files may be too low (ulimit -n)", len(fds), want)
	}
	return n, fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // mappings of them remain
	}
}

// socketOf returns a duplicate of a connection's socket.
func socketOf(conn *net.UnixConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var dupErr error
	err = raw.Control(func(s uintptr) { fd, dupErr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr); err != nil {
		return -1, err
	}
	return fd, nil
}

// handOver moves the resources of e to a connection.
func (e *Endpoint) handOver(c *conn) {
	out, in := 0, 1
	if !e.dialled {
		out, in = in, out
	}
	c.local, c.seg, c.board = e.local, e.seg, e.board
	c.out, c.in = newRingEnd(e.seg, out, true), newRingEnd(e.seg, in, false)
	e.local, e.seg, e.board = -1, nil, nil
	_ = e.Close() // closes its listener
}

// Close releases an Endpoint that no link has taken over.
func (e *Endpoint) Close() error {
	disposed.add(func() { _ = e.listener.Close() }) // unauthenticated processes may have filled its queue
	if e.local >= 0 {
		dispose(e.local)
		e.local = -1
	}
	var err error
	for _, mem := range [][]byte{e.seg, e.board} {
		if mem != nil {
			err = errors.Join(err, segment.Unmap(mem))
		}
	}
	e.seg, e.board = nil, nil
	return err
}
