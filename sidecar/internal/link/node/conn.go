package node

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// conn is the connection to one peer.
type conn struct {
	l     *Link
	peer  link.Peer
	fd    int // the proven socket
	local int // the local socket, for control messages
	seg   []byte
	out   ringEnd
	in    ringEnd

	rest  []byte // rest of a frame that is half written because it did not fit
	seq   uint64 // number of that frame
	needs int    // room that the next frame needs; 0: no frame waits
	refs  refs

	dst    []byte      // rest of a payload that is being read to its destination
	src    remoteSpan  // its rest in the peer's memory; pending is false if it comes through the ring
	source link.Region // the region of src
	moved  uint64      // bytes of payloads read from the peer's memory
	left   int         // bytes of an incomplete frame
	raw    [wire.HeaderBytes]byte
	head   wire.Header

	board        []byte                  // the board of the peer
	regions      map[link.Region]*region // regions of the peer
	mapped       uint64                  // sum of their sizes, in bytes
	wakes        int                     // wake-ups that are in the socket, not read
	moreControls bool                    // the last read stopped before the socket was empty
	controlsRead uint64                  // control messages read, without wake-ups
	unsent       []control               // control messages that the local socket has not accepted
	watched      bool                    // epoll reports when the local socket accepts data
	end          ending
	visit        visit
	err          error
	gone         bool
}

// ending is the end of what the peer writes. Data that it has written is read first.
type ending struct {
	cause error  // nil: the peer may write
	at    uint64 // position in the ring where that data ends
}

// fail ends c with err in the next Poll.
func (c *conn) fail(err error) {
	if c.err == nil && !c.gone {
		c.err = err
		c.l.failed++
	}
}

// endAfterRing records that the peer writes no more. The frames in the ring are still
// handed over.
func (c *conn) endAfterRing(cause error) {
	if c.end.cause == nil {
		n, _ := c.in.ready() // the next read reports an error of it
		c.end = ending{cause, c.in.at + uint64(n)}
	}
}

// errSocket means that the peer has closed the proven or the local socket.
var errSocket = errors.New("closed by the peer")

// checkProof reads the proven socket, which must stay silent.
func (c *conn) checkProof() int {
	var b [1]byte
	n, _, err := unix.Recvfrom(c.fd, b[:], unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0
	case err != nil:
		c.endAfterRing(link.Broken(err))
	case n > 0:
		c.fail(fmt.Errorf("%w: bytes on the socket of a connection through shared memory", link.ErrProtocol))
	default:
		c.endAfterRing(link.Broken(errSocket))
	}
	return 1
}

// close releases all resources. If a caller on the stack still uses the ring, it checks
// gone first.
func (c *conn) close() {
	c.gone = true
	for _, fd := range []int{c.fd, c.local} { // they are not used any more
		_ = unix.EpollCtl(c.l.epoll, unix.EPOLL_CTL_DEL, fd, nil) // at once, and not when they are closed
	}
	dispose(c.fd, c.local) // the peer may have sent descriptors that were not read
	c.rest, c.dst, c.src, c.unsent = nil, nil, remoteSpan{}, nil
	for r := range c.regions {
		c.unmap(r)
	}
	c.l.unmapLater(c.seg)
	c.l.unmapLater(c.board)
}

// unmapLater unmaps unused memory on another goroutine: the kernel takes milliseconds for
// the pages of a large mapping, and the engine would serve no rank meanwhile.
func (l *Link) unmapLater(mem []byte) {
	if mem == nil {
		return
	}
	l.unmapping.Go(func() {
		if err := segment.Unmap(mem); err != nil {
			l.cfg.Log.Warn("unmapping memory of a peer failed", "cause", err)
		}
	})
}
