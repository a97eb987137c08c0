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
	fd    int // proven socket
	local int // for words
	seg   []byte
	out   way
	in    way

	rest  []byte // of a frame that is half written: it did not fit
	seq   uint64 // of that
	needs int    // room that the next frame needs; 0: none waits
	refs  refs

	dst    []byte      // rest of a payload that is being read to where it goes
	src    lying       // of that, where it lies; of no region: it comes through the ring
	source link.Region // of src
	moved  uint64      // bytes of such payloads
	left   int         // bytes of a frame that is not all here
	raw    [wire.HeaderBytes]byte
	head   wire.Header

	board   []byte                  // the peer's
	regions map[link.Region]*region // of the peer
	mapped  uint64                  // bytes of them
	rung    int                     // so often words have come that are not read
	unheard bool                    // more of them are here than were read
	heard   uint64                  // of its words that do more than wake
	words   []word24                // that the local socket has not taken
	watched bool                    // epoll tells when it does
	ending  error                   // why the peer will write no more; what it has written comes first
	last    uint64                  // of that, where it ends
	err     error
	gone    bool
}

// fail ends c with err at the next Poll.
func (c *conn) fail(err error) {
	if c.err == nil && !c.gone {
		c.err = err
		c.l.failed++
	}
}

// end says that the peer writes no more. What is in the ring is still handed over.
func (c *conn) end(cause error) {
	if c.ending == nil {
		n, _ := c.in.ready() // what is wrong with it the next read finds
		c.ending, c.last = cause, c.in.at+uint64(n)
	}
}

// errSocket says that the sign of life has ended.
var errSocket = errors.New("closed by the peer")

// look looks at the proven socket, on which nothing is ever sent.
func (c *conn) look() int {
	var b [1]byte
	n, _, err := unix.Recvfrom(c.fd, b[:], unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0
	case err != nil:
		c.end(link.Broken(err))
	case n > 0:
		c.fail(fmt.Errorf("%w: bytes on the socket of a connection by shared memory", link.ErrProtocol))
	default:
		c.end(link.Broken(errSocket))
	}
	return 1
}

// close gives everything back. Whoever still uses the ring is a caller on the stack,
// which looks at gone first.
func (c *conn) close() {
	c.gone = true
	for _, fd := range []int{c.fd, c.local} { // nothing is expected of them any more
		_ = unix.EpollCtl(c.l.epoll, unix.EPOLL_CTL_DEL, fd, nil) // at once, and not when they are closed
	}
	dispose(c.fd, c.local) // the peer may have sent descriptors that were not read
	c.rest, c.dst, c.src, c.words = nil, nil, lying{}, nil
	for r := range c.regions {
		c.unmap(r)
	}
	c.l.giveBack(c.seg)
	c.l.giveBack(c.board)
}

// giveBack unmaps memory that nobody uses any more: pages of a large mapping take the
// kernel milliseconds, in which no rank would be heard.
func (l *Link) giveBack(mem []byte) {
	if mem == nil {
		return
	}
	l.unmapping.Go(func() {
		if err := segment.Unmap(mem); err != nil {
			l.cfg.Log.Warn("giving memory of a peer back", "cause", err)
		}
	})
}
