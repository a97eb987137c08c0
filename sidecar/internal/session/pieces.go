package session

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Pieces is the list of the allocated parts of an arena: the server adds to it, and the
// engine checks the ranges of descriptors against it. A list is never changed, only
// replaced.
type Pieces struct{ list atomic.Pointer[[]span] }

// span is a range of bytes, without the byte at to.
type span struct{ from, to uint64 }

func (p *Pieces) spans() []span {
	if list := p.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Around returns the piece that contains the byte at off, or two zeros if none does.
func (p *Pieces) Around(off uint64) (from, to uint64) {
	for _, s := range p.spans() {
		if s.from <= off && off < s.to {
			return s.from, s.to
		}
	}
	return 0, 0
}

// check returns an error if no correct client would request the piece.
func (p *Pieces) check(a shm.Ask, size uint64) error {
	if a.Bytes == 0 || a.Off%shm.PieceUnit != 0 || a.Bytes%shm.PieceUnit != 0 || a.Bytes > size || a.Off > size-a.Bytes {
		return fmt.Errorf("it asks for %d bytes at %d of an arena of %d: want multiples of %d within it", a.Bytes, a.Off, size, shm.PieceUnit)
	}
	list := p.spans()
	i := slices.IndexFunc(list, func(s span) bool { return a.Off < s.to && s.from < a.Off+a.Bytes })
	if i >= 0 {
		return fmt.Errorf("it asks for %d bytes at %d of its arena, of which %d at %d are allocated already", a.Bytes, a.Off, list[i].to-list[i].from, list[i].from)
	}
	if len(p.with(a.Off, a.Bytes)) > shm.MaxPieces {
		return fmt.Errorf("it asks for %d bytes at %d of its arena, apart from its %d pieces: want at most %d pieces that do not touch", a.Bytes, a.Off, len(list), shm.MaxPieces)
	}
	return nil
}

// with returns the list with one more piece, which is joined with its neighbours.
func (p *Pieces) with(off, size uint64) []span {
	list := slices.Clone(p.spans())
	i := slices.IndexFunc(list, func(s span) bool { return s.from >= off })
	if i < 0 {
		i = len(list)
	}
	list = slices.Insert(list, i, span{off, off + size})
	for _, at := range []int{i, i - 1} {
		if at >= 0 && at+1 < len(list) && list[at].to == list[at+1].from {
			list[at].to = list[at+1].to
			list = slices.Delete(list, at+1, at+2)
		}
	}
	return list
}

func (p *Pieces) add(off, size uint64) {
	list := p.with(off, size)
	p.list.Store(&list)
}
