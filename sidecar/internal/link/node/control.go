package node

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Control messages: what one sidecar tells another through the local socket. Each has the
// fields kind u32, region u32, offset u64, bytes u64.
const (
	controlWake = 1 // data or room that the peer waits for may be there
	controlHere = 2 // with a descriptor: the location of a region's bytes; registrations may refer to the region
	controlGone = 3 // a region no longer exists
)

const (
	controlBytes     = 24
	controlsPerPoll  = 64      // control messages of one peer read in one Poll
	controlsPerFrame = 1 << 14 // control messages read for one frame: more than a socket holds
	wakesMax         = 16      // wake-ups that may wait unread in the socket: reading each would cost a system call
)

// Bounds of the regions of one peer, and of all peers: two for each of its ranks. A
// process may have only some 65,000 mappings (vm.max_map_count); beyond them its runtime
// fails. Each region has a descriptor, and all regions together use at most half of the
// process's limit of descriptors (regionsLimit): ranks could not attach without a free
// one.
const (
	regionsMax = 1 << 11
	regionsAll = 1 << 14

	// mappedMax bounds the sum of the sizes of regions, in bytes: a quarter of the 128
	// TiB of addresses of a process. Peers choose the sizes, and pages that are never
	// read cost the peers nothing.
	mappedMax = 32 << 40
	// mappedPeer is the share of mappedMax that one peer may use, so that it does not use
	// up the share of the others.
	mappedPeer = mappedMax / 4
)

// control is one control message.
type control struct {
	kind      uint32
	region    link.Region
	off, size uint64
	share     *shared // the region of a controlHere
}

func (w *control) encode() (b [controlBytes]byte) {
	binary.LittleEndian.PutUint32(b[0:], w.kind)
	binary.LittleEndian.PutUint32(b[4:], uint32(w.region))
	binary.LittleEndian.PutUint64(b[8:], w.off)
	binary.LittleEndian.PutUint64(b[16:], w.size)
	return b
}

func decodeControl(b []byte) (w control, err error) {
	if len(b) != controlBytes {
		return w, fmt.Errorf("%w: control message of %d bytes, want %d", link.ErrProtocol, len(b), controlBytes)
	}
	w = control{
		kind: binary.LittleEndian.Uint32(b), region: link.Region(binary.LittleEndian.Uint32(b[4:])),
		off: binary.LittleEndian.Uint64(b[8:]), size: binary.LittleEndian.Uint64(b[16:]),
	}
	if w.kind < controlWake || w.kind > controlGone {
		return w, fmt.Errorf("%w: control message of kind %d, want %d to %d", link.ErrProtocol, w.kind, controlWake, controlGone)
	}
	return w, nil
}

// wake wakes the peer. If the socket is full of messages, the peer is awake already.
func (c *conn) wake() {
	w := control{kind: controlWake}
	c.l.stats.Wakes++
	_ = c.post(&w) // a broken socket is detected by its events
}

// sendControl sends w, or queues it until the socket accepts it.
func (c *conn) sendControl(w control) {
	c.use() // a Poll may have to send it
	if c.unsent = append(c.unsent, w); len(c.unsent) == 1 {
		c.flushControls()
	}
}

// flushControls sends the queued control messages.
func (c *conn) flushControls() {
	for len(c.unsent) > 0 {
		if w := &c.unsent[0]; w.share == nil || w.share.fd >= 0 {
			switch err := c.post(w); {
			case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ETOOMANYREFS):
				return // the next Poll tries again
			case err != nil:
				c.endAfterRing(link.Broken(fmt.Errorf("local socket: %w", err)))
				c.unsent = nil
				return
			}
			c.out.controls.Add(1)
		}
		c.unsent = c.unsent[1:]
	}
	c.unsent = nil
}

// armControls sends the queued control messages, or, before a sleep, makes epoll report
// when the local socket accepts them.
func (c *conn) armControls() {
	if len(c.unsent) == 0 && !c.watched {
		return
	}
	c.flushControls()
	events := uint32(localEvents)
	if c.watched = len(c.unsent) > 0; c.watched {
		events |= unix.EPOLLOUT
	}
	// Each time: no edge reports that fewer descriptors are in flight (ETOOMANYREFS).
	if err := c.l.watch(unix.EPOLL_CTL_MOD, c.local, events, int32(c.peer), ofLocal); err != nil {
		c.fail(link.Broken(err))
	}
}

// hasControls reports whether the peer has sent control messages that this side has not
// read.
func (c *conn) hasControls() bool { return c.moreControls || c.in.controls.Load() != c.controlsRead }

func (c *conn) post(w *control) error {
	b := w.encode()
	if w.share == nil {
		return send(c.local, b[:])
	}
	return unix.Sendmsg(c.local, b[:], unix.UnixRights(w.share.fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// readControls reads the control messages of the peer.
func (c *conn) readControls() (work int) {
	c.use() // what is read here may end the peer, whose ring is read first, and there may be more
	var b [controlBytes + 1]byte
	oob := c.l.oob
	c.wakes, c.moreControls = 0, false
	for range controlsPerPoll {
		n, k, flags, _, err := unix.Recvmsg(c.local, b[:], oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return work
		case errors.Is(err, unix.ECONNRESET): // the peer has not read messages of this side; its own messages are still here
			c.endAfterRing(link.Broken(fmt.Errorf("local socket: %w", err)))
			work++
			continue
		case err != nil:
			c.endAfterRing(link.Broken(fmt.Errorf("local socket: %w", err)))
			return work + 1
		case n == 0 && k == 0:
			c.endAfterRing(link.Broken(errSocket))
			return work + 1
		}
		work++
		if err := c.handleControl(b[:n], oob[:k], flags); err != nil {
			c.fail(err)
			return work
		}
	}
	c.moreControls = true // no edge reports the messages that remain
	return work
}

// handleControl handles one control message and its descriptors.
func (c *conn) handleControl(b, oob []byte, flags int) error {
	fds := descriptors(oob)
	err := c.applyControl(b, fds, flags)
	if err != nil {
		dispose(fds...) // the peer may have chosen a file whose close takes long
		return err
	}
	return nil // the region owns its descriptor
}

func (c *conn) applyControl(b []byte, fds []int, flags int) error {
	w, err := decodeControl(b)
	if err != nil {
		return err
	}
	if w.kind != controlWake {
		c.controlsRead++
	}
	if w.kind != controlHere && len(fds) > 0 {
		return fmt.Errorf("%w: %d descriptors with a control message of kind %d, want none", link.ErrProtocol, len(fds), w.kind)
	}
	switch w.kind {
	case controlHere:
		if flags&unix.MSG_CTRUNC != 0 {
			return c.l.refuse(c.peer, errors.New("no descriptor is free for memory of the peer: raise the limit of open files (ulimit -n)"))
		}
		if len(fds) != 1 {
			return fmt.Errorf("%w: %d descriptors for a region, want 1", link.ErrProtocol, len(fds))
		}
		return c.mapRegion(&w, fds[0])
	case controlGone:
		if c.src.pending() && w.region == c.source {
			return fmt.Errorf("%w: region %d ends while a frame refers to it", link.ErrProtocol, w.region)
		}
		c.unmap(w.region)
	}
	return nil
}

// regionsLimit returns how many regions of peers a process may map if it may have files
// open files.
func regionsLimit(files uint64) int { return int(min(files/2, regionsAll)) }

// descriptors returns the descriptors in the ancillary data of a message.
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

func (c *conn) mapRegion(w *control, fd int) error {
	if c.regions[w.region] != nil || len(c.regions) >= regionsMax {
		return fmt.Errorf("%w: region %d is announced twice, or is region %d of at most %d", link.ErrProtocol, w.region, len(c.regions)+1, regionsMax)
	}
	if c.l.regions >= c.l.regionsMost {
		return c.l.refuse(c.peer, fmt.Errorf("memory of peers: %d regions are mapped, want at most %d (half of the limit of open files, at most %d)", c.l.regions, c.l.regionsMost, regionsAll))
	}
	if w.size > mappedPeer-c.mapped || w.size > mappedMax-c.l.mapped {
		return c.l.refuse(c.peer, fmt.Errorf("memory of the peer: %d bytes, in addition to %d of this peer and %d of all peers, want sums of at most %d and %d", w.size, c.mapped, c.l.mapped, uint64(mappedPeer), uint64(mappedMax)))
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

// unmap releases a region of the peer.
func (c *conn) unmap(r link.Region) {
	if m := c.regions[r]; m != nil {
		delete(c.regions, r)
		c.l.regions--
		c.mapped -= m.size
		c.l.mapped -= m.size
		m.close()
	}
}
