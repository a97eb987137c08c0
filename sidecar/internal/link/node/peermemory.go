package node

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// Memory of a peer belongs to its ranks, which may have taken pages out of it. A mapping
// that is read there allocates the page again, on the account of the reader, and a rank could
// so fill another pod's sidecar. Pages that are there stay there, since the memory is sealed
// (segment.PagesStay). So a mapping is read where pages are known to be, and a system call, which
// allocates nothing, reads elsewhere: memory that was never written, mostly, and the first
// messages of a range. Where the pages are, the kernel is asked beside the engine: it looks at
// each of them, 2 ms a GiB.

// Bounds of looks for pages.
const (
	spansMax = 64      // ranges of a region in which pages are known to be
	looksMax = 4       // looks under way in a link
	vainMax  = 1 << 10 // reads between two looks that find nothing
)

// region is memory of a peer.
type region struct {
	l    *Link
	fd   int    // of its file
	off  uint64 // where it begins there
	size uint64
	mem  []byte // mapped; nil: it is read by system calls alone

	spans []extent // of mem, in which pages are; in order, and none touches another
	look  *look    // under way, or its result is not taken yet; nil: none
	vain  int      // reads to go without a look; grows with looks that find nothing
	pause int
}

// pageBytes is what regions begin at multiples of.
const pageBytes = 4096

// extent is a range of a region.
type extent struct{ from, to uint64 }

// look is the question where the pages end that begin at from.
type look struct {
	from uint64
	to   uint64 // once it is over
	over atomic.Bool
}

// openRegion makes a region of a descriptor, which it keeps if there is no error.
func (l *Link) openRegion(fd int, off, size uint64) (*region, error) {
	stay, err := segment.PagesStay(fd, off, size)
	if err != nil {
		return nil, err
	}
	if off%pageBytes != 0 {
		return nil, fmt.Errorf("it begins at %d, want a multiple of %d", off, pageBytes)
	}
	r := &region{l: l, fd: fd, off: off, size: size}
	if stay {
		r.mem, err = segment.OpenToRead(fd, off, size)
	}
	return r, err
}

// close gives the region back.
func (r *region) close() {
	r.l.giveBack(r.mem)
	dispose(r.fd)
}

// read copies the bytes from at on. Preconditions: they are within the region.
func (r *region) read(dst []byte, at uint64) error {
	if r.mem != nil && r.covers(at, at+uint64(len(dst))) {
		copy(dst, r.mem[at:])
		return nil
	}
	r.l.stats.ReadByCall += uint64(len(dst))
	for len(dst) > 0 {
		n, err := unix.Pread(r.fd, dst, int64(r.off+at))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("memory of the peer: %w", err)
		case n == 0:
			return fmt.Errorf("memory of the peer: %w", io.ErrUnexpectedEOF) // its size is sealed
		}
		dst, at = dst[n:], at+uint64(n)
	}
	return nil
}

// covers reports whether pages are known to be in a range, and otherwise has the kernel asked.
func (r *region) covers(from, to uint64) bool {
	if r.look != nil {
		r.take()
	}
	next := from
	for _, s := range r.spans {
		if s.from <= from && to <= s.to {
			return true
		}
		if s.from <= from && from < s.to {
			next = s.to // what is behind it
		}
	}
	if r.vain > 0 {
		r.vain--
		return false
	}
	r.ask(next)
	return false
}

// take takes the result of a look.
func (r *region) take() {
	if !r.look.over.Load() {
		return
	}
	from, to := r.look.from, r.look.to
	r.look = nil
	if to <= from {
		r.pause = min(2*r.pause+1, vainMax)
		r.vain = r.pause
		return
	}
	r.pause = 0
	r.add(extent{from, to})
}

// add adds a range. One that would be too many is forgotten.
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
	r.pause, r.vain = vainMax, vainMax
}

// ask begins a look.
func (r *region) ask(from uint64) {
	if r.look != nil || r.l.looks.Load() >= looksMax {
		return
	}
	fd, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil { // none is left: the next read tries it again
		return
	}
	r.l.looks.Add(1)
	q := &look{from: from}
	r.look = q
	l, at, left := r.l, int64(r.off+from), r.size-from
	l.unmapping.Go(func() {
		defer l.looks.Add(-1)
		end, err := unix.Seek(fd, at, unix.SEEK_HOLE)
		if err != nil || end < at {
			end = at
		}
		_ = unix.Close(fd) // of memory
		q.to = from + min(uint64(end-at), left)
		q.over.Store(true)
	})
}
