package node

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// What is said by the local socket, a message each of kind u32, region u32, offset u64,
// bytes u64:
const (
	wordWake = 1 // whatever is waited for may be here
	wordHere = 2 // with a descriptor: where a region's bytes are, that registrations may name
	wordGone = 3 // a region is no more
)

const (
	wordBytes  = 24
	wordsATime = 64      // read in one Poll of one peer
	wordsAhead = 1 << 14 // read for one frame: more than a socket holds
	rungMax    = 16      // times that words wait: mostly they only wake
)

// Regions of one peer, and of all: two for each of its ranks. A process may have only
// some 65,000 mappings (vm.max_map_count), without which its runtime dies. Each keeps a descriptor,
// and all of them have half of the descriptors that the process may have at most (regionsLimit):
// ranks could not attach without one.
const (
	regionsMax = 1 << 11
	regionsAll = 1 << 14

	// mappedMax bounds the sum of their sizes, in bytes: a quarter of the 128 TiB of addresses
	// that a process has. Peers choose the sizes, and pages that are never read cost them nothing.
	mappedMax = 32 << 40
	// mappedPeer is what one peer may have of it, so that it does not take it from the others.
	mappedPeer = mappedMax / 4
)

// word24 is one of them.
type word24 struct {
	kind      uint32
	region    link.Region
	off, size uint64
	share     *shared // of wordHere
}

func (w *word24) encode() (b [wordBytes]byte) {
	binary.LittleEndian.PutUint32(b[0:], w.kind)
	binary.LittleEndian.PutUint32(b[4:], uint32(w.region))
	binary.LittleEndian.PutUint64(b[8:], w.off)
	binary.LittleEndian.PutUint64(b[16:], w.size)
	return b
}

func decodeWord(b []byte) (w word24, err error) {
	if len(b) != wordBytes {
		return w, fmt.Errorf("%w: a word of %d bytes", link.ErrProtocol, len(b))
	}
	w = word24{
		kind: binary.LittleEndian.Uint32(b), region: link.Region(binary.LittleEndian.Uint32(b[4:])),
		off: binary.LittleEndian.Uint64(b[8:]), size: binary.LittleEndian.Uint64(b[16:]),
	}
	if w.kind < wordWake || w.kind > wordGone {
		return w, fmt.Errorf("%w: a word of kind %d", link.ErrProtocol, w.kind)
	}
	return w, nil
}

// wake wakes the peer. A socket that is full of words has done so.
func (c *conn) wake() {
	w := word24{kind: wordWake}
	c.l.stats.Wakes++
	_ = c.post(&w) // its end is noticed by the socket
}

// say tells the peer something, when the socket takes it.
func (c *conn) say(w word24) {
	if c.words = append(c.words, w); len(c.words) == 1 {
		c.sayOn()
	}
}

// sayOn says what could not be said before.
func (c *conn) sayOn() {
	for len(c.words) > 0 {
		if w := &c.words[0]; w.share == nil || w.share.fd >= 0 {
			switch err := c.post(w); {
			case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ETOOMANYREFS):
				return // the next Poll asks again
			case err != nil:
				c.end(link.Broken(fmt.Errorf("local socket: %w", err)))
				c.words = nil
				return
			}
			c.out.said.Add(1)
		}
		c.words = c.words[1:]
	}
	c.words = nil
}

// waitToSay says what waits to be said, or has epoll tell when the local socket takes it:
// for whoever is about to sleep.
func (c *conn) waitToSay() {
	if len(c.words) == 0 && !c.watched {
		return
	}
	c.sayOn()
	events := uint32(wordsEvents)
	if c.watched = len(c.words) > 0; c.watched {
		events |= unix.EPOLLOUT
	}
	// Each time: no edge tells that fewer descriptors are under way (ETOOMANYREFS).
	if err := c.l.watch(unix.EPOLL_CTL_MOD, c.local, events, int32(c.peer), ofWords); err != nil {
		c.fail(link.Broken(err))
	}
}

// toldMore reports that the peer has said what this side has not read.
func (c *conn) toldMore() bool { return c.unheard || c.in.said.Load() != c.heard }

func (c *conn) post(w *word24) error {
	b := w.encode()
	if w.share == nil {
		return send(c.local, b[:])
	}
	return unix.Sendmsg(c.local, b[:], unix.UnixRights(w.share.fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// hear takes what the peer says.
func (c *conn) hear() (work int) {
	var b [wordBytes + 1]byte
	oob := c.l.oob
	c.rung, c.unheard = 0, false
	for range wordsATime {
		n, k, flags, _, err := unix.Recvmsg(c.local, b[:], oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return work
		case errors.Is(err, unix.ECONNRESET): // words of this side were not read; what the peer said is still here
			c.end(link.Broken(fmt.Errorf("local socket: %w", err)))
			work++
			continue
		case err != nil:
			c.end(link.Broken(fmt.Errorf("local socket: %w", err)))
			return work + 1
		case n == 0 && k == 0:
			c.end(link.Broken(errSocket))
			return work + 1
		}
		work++
		if err := c.takeWord(b[:n], oob[:k], flags); err != nil {
			c.fail(err)
			return work
		}
	}
	c.unheard = true // no edge tells of the rest
	return work
}

// takeWord takes one word and its descriptors.
func (c *conn) takeWord(b, oob []byte, flags int) error {
	fds := descriptors(oob)
	err := c.obey(b, fds, flags)
	if err != nil {
		dispose(fds...) // the peer may have chosen what takes its time
		return err
	}
	return nil // a region keeps its descriptor
}

func (c *conn) obey(b []byte, fds []int, flags int) error {
	w, err := decodeWord(b)
	if err != nil {
		return err
	}
	if w.kind != wordWake {
		c.heard++
	}
	if w.kind != wordHere && len(fds) > 0 {
		return fmt.Errorf("%w: %d descriptors with a word of kind %d, want none", link.ErrProtocol, len(fds), w.kind)
	}
	switch w.kind {
	case wordHere:
		if flags&unix.MSG_CTRUNC != 0 {
			return c.l.refuse(c.peer, errors.New("no descriptor left for memory of the peer: raise the limit of open files (ulimit -n)"))
		}
		if len(fds) != 1 {
			return fmt.Errorf("%w: %d descriptors for a region", link.ErrProtocol, len(fds))
		}
		return c.mapRegion(&w, fds[0])
	case wordGone:
		if c.src.waits() && w.region == c.source {
			return fmt.Errorf("%w: region %d is gone while a frame refers to it", link.ErrProtocol, w.region)
		}
		c.unmap(w.region)
	}
	return nil
}

// regionsLimit is how many regions of peers a process may keep that may have so many open files.
func regionsLimit(files uint64) int { return int(min(files/2, regionsAll)) }

// descriptors are those in the ancillary data of a message.
func descriptors(oob []byte) (fds []int) {
	if len(oob) == 0 {
		return nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range list {
		if got, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func (c *conn) mapRegion(w *word24, fd int) error {
	if c.regions[w.region] != nil || len(c.regions) >= regionsMax {
		return fmt.Errorf("%w: region %d of %d is told of again", link.ErrProtocol, w.region, len(c.regions))
	}
	if c.l.regions >= c.l.regionsMost {
		return c.l.refuse(c.peer, fmt.Errorf("memory of peers: %d regions, want at most %d: half of the limit of open files, and never more than %d", c.l.regions, c.l.regionsMost, regionsAll))
	}
	if w.size > mappedPeer-c.mapped || w.size > mappedMax-c.l.mapped {
		return c.l.refuse(c.peer, fmt.Errorf("memory of the peer: %d bytes beside %d of its and %d of all peers', want at most %d and %d together", w.size, c.mapped, c.l.mapped, uint64(mappedPeer), uint64(mappedMax)))
	}
	r, err := c.l.openRegion(fd, w.off, w.size)
	if err != nil {
		return c.l.refuse(c.peer, fmt.Errorf("memory of the peer: %w", err))
	}
	c.regions[w.region] = r
	c.l.regions++
	c.mapped += w.size
	c.l.mapped += w.size
	return nil
}

// unmap gives a region of the peer back.
func (c *conn) unmap(r link.Region) {
	if m := c.regions[r]; m != nil {
		delete(c.regions, r)
		c.l.regions--
		c.mapped -= m.size
		c.l.mapped -= m.size
		m.close()
	}
}
