package outrigger

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// pieces asks the sidecar for the arena, piece by piece (LAYOUT §2.3). One wish is under way
// at a time: arena.mu is held.
type pieces struct {
	conn    *net.UnixConn
	answers chan shm.Answer // by Session.watch, which closes it when the socket has ended
	refused time.Time       // when there was no memory
}

// refusedPause is how long those that can do without do not ask again after a refusal.
const refusedPause = time.Second

// grow makes the arena's bytes usable up to end. One that does not insist goes without for
// a while after a refusal.
// Preconditions: a.mu is held.
func (a *arena) grow(end int, insist bool) error {
	if end <= a.ready {
		return nil
	}
	p := a.pieces
	if !insist && !p.refused.IsZero() && time.Since(p.refused) < refusedPause {
		return ErrNoMemory
	}
	var err error
	for _, least := range []bool{false, true} { // more than is needed, or else no more
		to := int(shm.PieceEnd(uint64(a.ready), uint64(end), uint64(a.total)))
		if least {
			to = min((end+shm.PieceUnit-1)&^(shm.PieceUnit-1), a.total)
		}
		var n int
		n, err = p.ask(a.ready, to-a.ready)
		if a.ready += n; end <= a.ready {
			return nil
		}
		if !errors.Is(err, ErrNoMemory) {
			return err
		}
	}
	p.refused = time.Now()
	return err
}

// ask wants n bytes from off on, and returns how many of them it has got; the error says why
// they are not all.
func (p *pieces) ask(off, n int) (int, error) {
	want := shm.Ask{Off: uint64(off), Bytes: uint64(n)}
	if _, err := p.conn.Write(want.Encode()); err != nil {
		return 0, fmt.Errorf("%w: asking for %s of the arena: %w", ErrSidecarGone, memory.Text(uint64(n)), err)
	}
	got, ok := <-p.answers
	switch {
	case !ok:
		return 0, ErrSidecarGone
	case got.Off != want.Off || got.Bytes > want.Bytes:
		return 0, fmt.Errorf("%w: it gives %d bytes at %d of the arena, of which %d at %d were asked for", ErrSidecarGone, got.Bytes, got.Off, want.Bytes, want.Off)
	case got.Bytes < want.Bytes:
		return int(got.Bytes), fmt.Errorf("%w: the sidecar says: %s", ErrNoMemory, got.Text)
	}
	return n, nil
}
