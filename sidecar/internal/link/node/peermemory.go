package node

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
)

// Memory of a peer belongs to its ranks, which may have removed pages from it. If a
// reader accesses a missing page through a mapping, the kernel allocates the page again
// and charges it to the reader, and so a rank could fill the memory of another pod's
// sidecar. A page that exists stays, since the memory is sealed (segment.PagesStay). So
// pages that are known to exist are read through the mapping; all other bytes are read by
// a system call, which allocates nothing: mostly memory that was never written, and the
// first messages of a range. A page probe asks the kernel where the pages are, on another
// goroutine, because the kernel visits each page, which takes 2 ms a GiB.

// Bounds of page probes.
const (
	spansMax  = 64      // ranges of a region known to have pages: covers searches all of them at each read
	probesMax = 4       // probes in flight in a link
	skipMax   = 1 << 10 // reads between two probes that find no pages
)

// region is memory of a peer.
type region struct {
	l    *Link
	fd   int    // descriptor of its file
	off  uint64 // its offset in the file
	size uint64
	mem  []byte // mapped; nil: it is read by system calls alone

	copies copyeng.Hold // pieces in flight that a channel copies from mem
	faulty bool         // such a copy has failed: mem is not read any more

	spans []extent   // ranges of mem that have pages; in order, and none touches another
	probe *pageProbe // in flight, or its result is not collected yet; nil: none
	skip  int        // reads until the next probe
	pause int        // value of skip after the next probe that finds nothing; grows with each such probe
}

// pageBytes is the alignment of regions.
const pageBytes = 4096

// extent is a range of a region.
type extent struct{ from, to uint64 }

// pageProbe is a request for the end of the pages that begin at from.
type pageProbe struct {
	from uint64
	to   uint64 // valid once over is true
	over atomic.Bool
}

// openRegion returns the region of a descriptor, and owns fd if there is no error.
func (l *Link) openRegion(fd int, off, size uint64) (*region, error) {
	stay, err := segment.PagesStay(fd, off, size)
	if err != nil {
		return nil, err
	}
	if off%pageBytes != 0 {
		return nil, fmt.Errorf("it begins at offset %d, want a multiple of %d", off, pageBytes)
	}
	r := &region{l: l, fd: fd, off: off, size: size}
	if stay {
		r.mem, err = segment.OpenToRead(fd, off, size)
	}
	return r, err
}

// close releases the region. It waits for the pieces that a channel is copying from it.
func (r *region) close() {
	r.l.cfg.Copies.Wait(&r.copies)
	r.l.unmapLater(r.mem)
	dispose(r.fd)
}

// read copies the bytes from at on. Preconditions: they are within the region.
func (r *region) read(dst []byte, at uint64) error {
	if r.mapped(at, uint64(len(dst))) {
		copy(dst, r.mem[at:])
		return nil
	}
	return r.call(dst, at)
}

// mapped reports whether n bytes can be read through the mapping.
func (r *region) mapped(at, n uint64) bool { return r.mem != nil && !r.faulty && r.covers(at, at+n) }

// call copies by a system call.
func (r *region) call(dst []byte, at uint64) error {
	r.l.stats.ReadByCall += uint64(len(dst))
	for len(dst) > 0 {
		n, err := unix.Pread(r.fd, dst, int64(r.off+at))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("memory of the peer: %w", err)
		case n == 0:
			return fmt.Errorf("memory of the peer: %w", io.ErrUnexpectedEOF) // cannot happen: its size is sealed
		}
		dst, at = dst[n:], at+uint64(n)
	}
	return nil
}

// covers reports whether a range is known to have pages, and otherwise starts a probe.
func (r *region) covers(from, to uint64) bool {
	if r.probe != nil {
		r.collect()
	}
	next := from
	for _, s := range r.spans {
		if s.from <= from && to <= s.to {
			return true
		}
		if s.from <= from && from < s.to {
			next = s.to // continue behind the known pages
		}
	}
	if r.skip > 0 {
		r.skip--
		return false
	}
	r.startProbe(next)
	return false
}

// collect stores the result of a probe that is over.
func (r *region) collect() {
	if !r.probe.over.Load() {
		return
	}
	from, to := r.probe.from, r.probe.to
	r.probe = nil
	if to <= from {
		r.pause = min(2*r.pause+1, skipMax)
		r.skip = r.pause
		return
	}
	r.pause = 0
	r.add(extent{from, to})
}

// add adds a range. It drops a range that would exceed spansMax.
func (r *region) add(x extent) {
	kept := r.spans[:0]
	for _, s := range r.spans {
		if s.to < x.from || x.to < s.from {
			kept = append(kept, s)
			continue
		}
		x.from, x.to = min(x.from, s.from), max(x.to, s.to)
	}
	if r.spans = kept; len(kept) < spansMax {
		r.spans = append(kept, x)
		return
	}
	r.pause, r.skip = skipMax, skipMax
}

// startProbe starts a probe.
func (r *region) startProbe(from uint64) {
	if r.probe != nil || r.l.probes.Load() >= probesMax {
		return
	}
	fd, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil { // no descriptor is free: the next read tries again
		return
	}
	r.l.probes.Add(1)
	q := &pageProbe{from: from}
	r.probe = q
	l, at, left := r.l, int64(r.off+from), r.size-from
	l.unmapping.Go(func() {
		defer l.probes.Add(-1)
		end, err := unix.Seek(fd, at, unix.SEEK_HOLE)
		if err != nil || end < at {
			end = at
		}
		_ = unix.Close(fd) // quick: it is memory
		q.to = from + min(uint64(end-at), left)
		q.over.Store(true)
	})
}
