package session

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

const mib = 1 << 20

// ask requests a piece.
func (c *client) ask(off, n uint64) shm.Answer {
	c.t.Helper()
	a := shm.Ask{Off: off, Bytes: n}
	if _, err := c.Write(a.Encode()); err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, shm.AnswerBytes+1)
	got, err := c.Read(b)
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := shm.DecodeAnswer(b[:got])
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// held returns how much memory a file takes.
func held(t *testing.T, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestArenaIsTakenInPieces checks that attached ranks that have used nothing take no memory
// for their arenas, and that a requested piece is allocated before the answer is sent.
func TestArenaIsTakenInPieces(t *testing.T) {
	b := serve(t, func(c *Config) { c.ArenaBytes = 256 * mib })
	first := b.dial(t)
	_, fds := first.say(hello(4).Encode())
	for rank := uint32(5); rank < 8; rank++ {
		_, own := b.dial(t).say(hello(rank).Encode())
		if arena, control := held(t, own[1]), held(t, own[0]); arena != 0 || control > mib {
			t.Errorf("idle rank %d: its arena takes %d bytes, and its segment %d", rank, arena, control)
		}
	}
	for _, p := range [][2]uint64{{0, mib}, {128 * mib, 2 * mib}, {mib, 3 * mib}} {
		before := held(t, fds[1])
		if got := first.ask(p[0], p[1]); got != (shm.Answer{Off: p[0], Bytes: p[1]}) {
			t.Errorf("asked for %v: %+v", p, got)
		}
		if took := held(t, fds[1]) - before; took != int64(p[1]) {
			t.Errorf("%d bytes were allocated for %v", took, p)
		}
	}
	if diff := cmp.Diff([]span{{0, 4 * mib}, {128 * mib, 130 * mib}}, b.host.session(4).Pieces().spans(), cmp.AllowUnexported(span{})); diff != "" {
		t.Errorf("pieces (-want +got):\n%s", diff)
	}
}

// TestOlderClientHasItsWholeArena: a client that does not request pieces touches all of its
// arena.
func TestOlderClientHasItsWholeArena(t *testing.T) {
	b := serve(t, func(c *Config) { c.ArenaBytes = 8 * mib })
	h := hello(4)
	h.Features &^= shm.FeaturePieces
	w, fds := b.dial(t).say(h.Encode())
	if w.Features&shm.FeaturePieces != 0 || held(t, fds[1]) != 8*mib || b.host.session(4).Pieces() != nil {
		t.Errorf("features %#x, %d bytes of its arena are allocated", w.Features, held(t, fds[1]))
	}
}

// TestPiecesThatNoClientWants checks that a client that requests a piece outside of its
// arena, or one that is allocated already, is expelled.
func TestPiecesThatNoClientWants(t *testing.T) {
	b := serve(t)
	for what, c := range map[string]struct {
		asks [][2]uint64
		want string
	}{
		"nothing":           {[][2]uint64{{0, 0}}, "asks for 0 bytes at 0 of an arena of 1048576"},
		"not units":         {[][2]uint64{{0, 4097}}, "want multiples of 4096"},
		"not at a unit":     {[][2]uint64{{64, 4096}}, "want multiples of 4096"},
		"behind its end":    {[][2]uint64{{mib, 4096}}, "want multiples of 4096 within it"},
		"across its end":    {[][2]uint64{{mib - 4096, 8192}}, "within it"},
		"around everything": {[][2]uint64{{1<<64 - 4096, 8192}}, "within it"},
		"more than all":     {[][2]uint64{{0, 1<<64 - 4096}}, "within it"},
		"twice":             {[][2]uint64{{4096, 8192}, {8192, 4096}}, "of which 8192 at 4096 are allocated already"},
		"around a piece":    {[][2]uint64{{8192, 4096}, {4096, 12288}}, "allocated already"},
		"too many": {func() (list [][2]uint64) {
			for i := range uint64(shm.MaxPieces + 1) {
				list = append(list, [2]uint64{i * 8192, 4096})
			}
			return list
		}(), "apart from its 64 pieces: want at most 64"},
	} {
		t.Run(what, func(t *testing.T) {
			c1 := b.dial(t)
			c1.say(hello(4).Encode())
			sess := b.host.session(4)
			for _, a := range c.asks[:len(c.asks)-1] {
				c1.ask(a[0], a[1])
			}
			last := c.asks[len(c.asks)-1]
			bad := shm.Ask{Off: last[0], Bytes: last[1]}
			if _, err := c1.Write(bad.Encode()); err != nil {
				t.Fatal(err)
			}
			if n, err := c1.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("%d bytes, %v; want the end", n, err)
			}
			wait(t, "the session's end", func() bool { return b.host.session(4) != sess })
			b.host.mu.Lock()
			cause := b.host.expelled[len(b.host.expelled)-1]
			b.host.mu.Unlock()
			if !strings.Contains(cause.Error(), c.want) {
				t.Errorf("expelled for %q, want %q", cause, c.want)
			}
			wait(t, "the rank's place", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.ranks[4] == nil })
		})
	}
}

// TestShortage checks that a piece for which there is no memory is refused with the reason,
// and that the rank goes on with the memory it has. A rank that requests pieces without end
// is refused each time, and the other ranks get their share.
func TestShortage(t *testing.T) {
	b := serve(t, func(c *Config) { c.ArenaBytes = 256 * mib })
	s := b.cfg.sizes(256 * mib)
	limit := uint64(4*s.Rank()) + 10*mib
	b.memory = newReservations(0, uint64(4*s.Rank()), func() ([]pool, error) {
		return []pool{{limit: limit, group: true, where: "in the test"}}, nil
	})
	c := b.dial(t)
	c.say(hello(4).Encode())
	if got := c.ask(0, 8*mib); got.Bytes != 8*mib {
		t.Fatalf("what all can spare: %+v", got)
	}
	for range 20 {
		got := c.ask(8*mib, 8*mib)
		if got.Bytes != 0 || !strings.Contains(got.Text, "rank 4 asks for 8 MiB more of its arena: not enough memory") || !strings.Contains(got.Text, "raise the limit") {
			t.Fatalf("more than that: %+v", got)
		}
	}
	for rank := uint32(5); rank < 8; rank++ {
		other := b.dial(t)
		other.say(hello(rank).Encode())
		if got := other.ask(0, memory.ArenaFirst); got.Bytes != memory.ArenaFirst {
			t.Errorf("rank %d: its first piece: %+v", rank, got)
		}
	}
	if got := c.ask(8*mib, 4*mib); got.Bytes != 4*mib {
		t.Errorf("what is left: %+v", got)
	}
	if n := b.log.count("application refused"); n != 1 {
		t.Errorf("%d lines of 20 refusals, want 1", n)
	}
}

// TestPiecesAreGivenBack checks that a rank's pieces are free again when its session ends.
func TestPiecesAreGivenBack(t *testing.T) {
	b := serve(t, func(c *Config) { c.ArenaBytes = 256 * mib })
	b.memory = newReservations(0, 0, func() ([]pool, error) {
		return []pool{{limit: 64 * mib, group: true, where: "in the test"}}, nil
	})
	for i := range 3 {
		c := b.dial(t)
		c.say(hello(4).Encode())
		if got := c.ask(0, 60*mib); got.Bytes != 60*mib {
			t.Fatalf("round %d: %+v", i, got)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		b.host.waitGone(i + 1)
		wait(t, "the rank's place", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.ranks[4] == nil })
	}
	if b.memory.held != 0 || b.memory.coming != 0 {
		t.Errorf("%d bytes are held, %d kept, of no session", b.memory.held, b.memory.coming)
	}
}

// TestPieceAfterTheSession checks that memory that is promised while its session ends
// belongs to no session.
func TestPieceAfterTheSession(t *testing.T) {
	r := newReservations(0, 0, func() ([]pool, error) { return []pool{{limit: 100, where: "in the test"}}, nil })
	of, err := r.promise(10, false)
	if err != nil {
		t.Fatal(err)
	}
	more, err := r.promise(20, true)
	if err != nil {
		t.Fatal(err)
	}
	of.release()
	more.settle()
	more.shrink(15)
	of.join(more)
	if r.held != 0 || r.moving != 0 {
		t.Errorf("%d bytes are held, %d moving", r.held, r.moving)
	}
}

// TestDeafAsker checks that a client that requests pieces, and does not read the answers,
// ends only its own session.
func TestDeafAsker(t *testing.T) {
	b := serve(t, func(c *Config) { c.ArenaBytes, c.HelloTimeout = 1<<30, 50*time.Millisecond })
	c := b.dial(t)
	c.say(hello(4).Encode())
	for i := uint64(0); ; i++ {
		a := shm.Ask{Off: i * 4096, Bytes: 4096}
		if _, err := c.Write(a.Encode()); err != nil {
			if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
				t.Fatal(err)
			}
			break
		}
	}
	b.host.waitGone(1)
	if cause := fmt.Sprint(b.host.expelled); !strings.Contains(cause, "has not read an answer") {
		t.Errorf("expelled for %s", cause)
	}
}

// TestPiecesAgainstASet checks that the list of pieces equals the set of units that were
// added, in any order.
func TestPiecesAgainstASet(t *testing.T) {
	for seed := range uint64(200) {
		var p Pieces
		var set [40]bool
		for i, at := range rand.New(rand.NewPCG(seed, 0)).Perm(len(set)) {
			if i > 25 {
				break
			}
			a := shm.Ask{Off: uint64(at) * shm.PieceUnit, Bytes: shm.PieceUnit}
			if err := p.check(a, uint64(len(set))*shm.PieceUnit); err != nil {
				t.Fatal(err)
			}
			p.add(a.Off, a.Bytes)
			set[at] = true
		}
		for at, want := range set {
			from, to := p.Around(uint64(at) * shm.PieceUnit)
			if in := from != to; in != want {
				t.Fatalf("seed %d: unit %d: %v, want %v in %v", seed, at, in, want, p.spans())
			}
			if want && (slices.Contains(set[from/shm.PieceUnit:to/shm.PieceUnit], false) || to < uint64(len(set))*shm.PieceUnit && set[to/shm.PieceUnit] || from > 0 && set[from/shm.PieceUnit-1]) {
				t.Fatalf("seed %d: unit %d is in [%d, %d) of %v", seed, at, from, to, set)
			}
		}
	}
}

// TestOneAsksWhileOthersLook checks that the engine may read the pieces while the server
// adds to them.
func TestOneAsksWhileOthersLook(t *testing.T) {
	var p Pieces
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(1000) {
			p.add(i*shm.PieceUnit, shm.PieceUnit)
		}
	})
	for last := uint64(0); last < 1000*shm.PieceUnit; {
		from, to := p.Around(0)
		if from != 0 || to < last {
			t.Fatalf("[%d, %d) after %d", from, to, last)
		}
		last = to
	}
	wg.Wait()
}
