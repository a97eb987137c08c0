package outrigger

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// pieces requests the arena from the sidecar piece by piece (LAYOUT §2.3). There is one request at
// a time: arena.mu is held.
type pieces struct {
	conn    *net.UnixConn
	answers chan shm.Answer // answers from Session.watch, which closes the channel when the socket has ended
	refused time.Time       // last time at which the sidecar had no memory
}

// refusedPause is how long callers that can do without memory request none after the sidecar had
// none: each request costs a round trip.
const refusedPause = time.Second

// grow has the sidecar allocate the arena up to end. A caller that does not insist fails at once
// for refusedPause after the sidecar had no memory.
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
	for _, least := range []bool{false, true} { // first more than is needed; if the sidecar has not so much, exactly what is needed
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

// ask requests n bytes from off on and returns how many of them the sidecar has allocated. If these
// are fewer, the error has the reason.
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
