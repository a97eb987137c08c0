package node

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// shared is a region of this side, that peers may be given.
type shared struct {
	region    link.Region
	fd        int // open for reading; -1: it is no more
	off, size uint64
	told      bool // to all peers, and to those that come
}

// ShareRegion says where the bytes of a region are: size bytes from off on of the
// descriptor fd, which stays the caller's. Only such a region can be registered.
// Peers take no more than regionsMax of them: what is beyond goes by frames.
func (l *Link) ShareRegion(region link.Region, fd int, off, size uint64) error {
	if len(l.shares) >= regionsMax {
		return errMany
	}
	// Another open file of the same memory, by which nothing is written. A peer of the same
	// user could open it again: it is trusted with that, having the job's certificate.
	own, err := readOnly(fd)
	if err != nil {
		return err
	}
	l.shares[region] = &shared{region: region, fd: own, off: off, size: size}
	return nil
}

var errMany = fmt.Errorf("node: %d regions are shared already, which are as many as peers take", regionsMax)

// readOnly opens a file again. Its rank may hold a lease of it, which is not waited for.
func readOnly(fd int) (int, error) {
	own, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("node: memory for peers to read: %w", err)
	}
	return own, nil
}

// DropRegion ends what ShareRegion began. Registrations of it have ended before.
func (l *Link) DropRegion(region link.Region) {
	s := l.shares[region]
	if s == nil {
		return
	}
	delete(l.shares, region)
	_ = unix.Close(s.fd) // peers have their own
	if s.fd = -1; !s.told {
		return
	}
	for _, c := range l.list {
		c.say(word24{kind: wordGone, region: region})
	}
}

// errNotShared says that memory is not of a kind that can be passed: what is there goes
// by frames.
var errNotShared = errors.New("memory that is not shared with peers of this machine")

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
	l.tellShare(s)
	return link.Key{Key: key}, nil
}

// tellShare passes a region to all peers, once.
func (l *Link) tellShare(s *shared) {
	if s.told {
		return
	}
	s.told = true
	for _, c := range l.list {
		c.share(s)
	}
}

// Deregister ends a registration.
func (l *Link) Deregister(k link.Key) { l.board.drop(k.Key) }

// Release ends a registration under which a peer has read (link.Abilities).
func (l *Link) Release(k link.Key) {
	if ref, ok := find(l.board.mem, k.Key); ok && l.board.drop(k.Key) {
		l.stats.BytesLent += ref.Len
	}
}

// share passes a region.
func (c *conn) share(s *shared) {
	c.say(word24{kind: wordHere, region: s.region, off: s.off, size: s.size, share: s})
}
