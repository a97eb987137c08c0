package node

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// shared is a region of this side that peers may read.
type shared struct {
	region    link.Region
	fd        int // open for reading; -1: the region no longer exists
	off, size uint64
	announced bool // to all peers, and to each that connects later
}

// ShareRegion sets the location of the bytes of a region: size bytes of fd from off on.
// The caller keeps ownership of fd. Only such a region can be registered. Peers accept at
// most regionsMax of them: data of further regions is sent in frames.
func (l *Link) ShareRegion(region link.Region, fd int, off, size uint64) error {
	if len(l.shares) >= regionsMax {
		return errTooManyShares
	}
	// Open the memory again for reading only, so that peers cannot write through the
	// descriptor. A peer of the same user could open it again for writing: it is trusted
	// not to, because it has the job's certificate.
	own, err := readOnly(fd)
	if err != nil {
		return err
	}
	l.shares[region] = &shared{region: region, fd: own, off: off, size: size}
	return nil
}

var errTooManyShares = fmt.Errorf("node: %d regions are shared, as many as peers accept", regionsMax)

// readOnly opens a file again. Its rank may hold a lease of it; O_NONBLOCK does not wait
// for the lease.
func readOnly(fd int) (int, error) {
	own, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("node: memory for peers to read: %w", err)
	}
	return own, nil
}

// DropRegion reverses ShareRegion. Registrations of the region have ended before.
func (l *Link) DropRegion(region link.Region) {
	s := l.shares[region]
	if s == nil {
		return
	}
	delete(l.shares, region)
	_ = unix.Close(s.fd) // peers have their own descriptors
	if s.fd = -1; !s.announced {
		return
	}
	for _, c := range l.list {
		c.sendControl(control{kind: controlGone, region: region})
	}
}

// errNotShared means that the memory cannot be passed to peers; its data is sent in
// frames.
var errNotShared = errors.New("node: the memory is not shared with peers of this machine")

// Register makes ref readable for the peers of this machine.
func (l *Link) Register(ref link.Ref) (link.Key, error) {
	s := l.shares[ref.Region]
	if s == nil || ref.Off > s.size || ref.Len > s.size-ref.Off {
		return link.Key{}, errNotShared
	}
	key, err := l.board.add(ref)
	if err != nil {
		return link.Key{}, err
	}
	l.announce(s)
	return link.Key{Key: key}, nil
}

// announce passes a region to all peers, once.
func (l *Link) announce(s *shared) {
	if s.announced {
		return
	}
	s.announced = true
	for _, c := range l.list {
		c.share(s)
	}
}

// Deregister ends a registration.
func (l *Link) Deregister(k link.Key) { l.board.remove(k.Key) }

// Release ends a registration under which a peer has read (link.Abilities).
func (l *Link) Release(k link.Key) {
	if ref, ok := lookup(l.board.mem, k.Key); ok && l.board.remove(k.Key) {
		l.stats.BytesLent += ref.Len
	}
}

// share passes a region to the peer.
func (c *conn) share(s *shared) {
	c.sendControl(control{kind: controlHere, region: s.region, off: s.off, size: s.size, share: s})
}
