package outrigger

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// steward answers a client's requests for pieces of its arena.
type steward struct {
	*fake
	mu   sync.Mutex
	asks []shm.Ask
	room uint64 // remaining bytes
}

// inPieces opens a session with an arena of 16 MiB that is allocated in pieces while room
// bytes suffice.
func inPieces(t *testing.T, room uint64) (*Session, *steward) {
	t.Helper()
	s, f := attachTo(t, shape{arena: 16 << 20, features: shm.FeaturesAll &^ shm.FeatureExpose})
	w := &steward{fake: f, room: room}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for b := make([]byte, shm.AskBytes+1); ; {
			n, err := f.conn.Read(b)
			if err != nil {
				return
			}
			answer := w.serve(b[:n])
			if _, err := f.conn.Write(answer.Encode()); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { f.hangUp(); <-over })
	return s, w
}

func (w *steward) serve(raw []byte) shm.Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, err := shm.DecodeAsk(raw)
	if err != nil {
		w.t.Error(err)
	}
	w.asks = append(w.asks, a)
	if a.Bytes > w.room {
		return shm.Answer{Off: a.Off, Text: "there is no room: raise the limit"}
	}
	w.room -= a.Bytes
	if _, err := segment.Allocate(w.arenaFile, int64(a.Off), int64(a.Bytes)); err != nil {
		w.t.Error(err)
	}
	return shm.Answer{Off: a.Off, Bytes: a.Bytes}
}

// asked returns the requests so far, and the bytes of memory that the arena uses.
func (w *steward) asked() ([]shm.Ask, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstat(w.arenaFile, &st); err != nil {
		w.t.Error(err)
	}
	return slices.Clone(w.asks), uint64(st.Blocks * 512)
}

// TestArenaComesInPieces: a session requests only memory that it allocates, and accesses only
// memory that was granted.
func TestArenaComesInPieces(t *testing.T) {
	s, w := inPieces(t, 1<<30)
	if asks, bytes := w.asked(); len(asks) != 0 || bytes != 0 {
		t.Errorf("a session that allocates nothing asks for %v, and takes %d bytes", asks, bytes)
	}
	var all [][]byte
	for _, n := range []int{100, 1 << 19, 1<<20 - 4096, 5 << 20, 64} {
		b, err := Alloc[byte](s, n)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			b[i] = 1
		}
		all = append(all, b)
	}
	asks, bytes := w.asked()
	sum := uint64(0)
	for _, a := range asks {
		if a.Off != sum {
			t.Errorf("asks that do not follow each other: %v", asks)
		}
		sum += a.Bytes
	}
	if len(asks) < 3 || sum > 8<<20 || bytes != sum {
		t.Errorf("6.5 MiB are %v, of which %d bytes are allocated", asks, bytes)
	}
	for _, b := range all {
		if err := Free(s, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Alloc[byte](s, 6<<20); err != nil {
		t.Fatal(err)
	}
	if again, _ := w.asked(); len(again) != len(asks) {
		t.Errorf("memory that was freed is asked for again: %v", again[len(asks):])
	}
}

// TestShortageIsAnError: the error of Alloc has the sidecar's text. The existing memory is
// used, and an operation that can work without more memory does not repeat the request at
// once.
func TestShortageIsAnError(t *testing.T) {
	s, w := inPieces(t, 3<<19)
	if _, err := Alloc[byte](s, 2<<20); !errors.Is(err, ErrNoMemory) || !contains(err, "raise the limit") {
		t.Errorf("more than there is: %v", err)
	}
	if _, err := Alloc[byte](s, 1<<20+4096); err != nil { // the piece of this allocation has no more room than needed
		t.Fatal(err)
	}
	asks, _ := w.asked()
	if _, ok := s.arena.tryAlloc(1 << 20); ok {
		t.Error("memory came of nothing")
	}
	more, _ := w.asked()
	if len(more) != len(asks) {
		t.Errorf("what can do without asked at once after a refusal")
	}
	s.arena.mu.Lock()
	s.arena.pieces.refused = time.Now().Add(-refusedPause)
	s.arena.mu.Unlock()
	if _, ok := s.arena.tryAlloc(1 << 20); ok {
		t.Error("memory came of nothing")
	}
	if later, _ := w.asked(); len(later) <= len(more) {
		t.Error("what can do without never asks again")
	}
	if _, err := Alloc[byte](s, 4096); err != nil {
		t.Errorf("a page, for which there is room: %v", err)
	}
}

// TestManyAllocateAtOnce: each of several goroutines that request pieces at once gets its own.
func TestManyAllocateAtOnce(t *testing.T) {
	s, w := inPieces(t, 1<<30)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				b, err := Alloc[byte](s, 90_000)
				if err != nil {
					t.Error(err)
					return
				}
				for j := range b {
					b[j] = byte(i)
				}
			}
		})
	}
	wg.Wait()
	asks, bytes := w.asked()
	if sum := asks[len(asks)-1].Off + asks[len(asks)-1].Bytes; sum != bytes {
		t.Errorf("%d bytes are allocated of %v", bytes, asks)
	}
}

// TestSidecarEndsInsteadOfAnAnswer: Alloc does not wait for a sidecar that has ended.
func TestSidecarEndsInsteadOfAnAnswer(t *testing.T) {
	s, f := attachTo(t, shape{features: shm.FeaturesAll &^ shm.FeatureExpose})
	wait := f.answering(func() {
		if _, err := f.conn.Read(make([]byte, shm.AskBytes)); err != nil {
			t.Error(err)
		}
		f.hangUp()
	})
	if _, err := Alloc[byte](s, 1); !errors.Is(err, ErrSidecarGone) {
		t.Errorf("%v, want ErrSidecarGone", err)
	}
	wait()
}

// TestSidecarThatLiesAboutPieces: an answer that matches no request is an error.
func TestSidecarThatLiesAboutPieces(t *testing.T) {
	for what, answer := range map[string]shm.Answer{"elsewhere": {Off: 4096, Bytes: 4096}, "too many": {Bytes: 1 << 40}} {
		s, f := attachTo(t, shape{features: shm.FeaturesAll &^ shm.FeatureExpose})
		wait := f.answering(func() {
			if _, err := f.conn.Read(make([]byte, shm.AskBytes)); err != nil {
				t.Error(err)
			}
			if _, err := f.conn.Write(answer.Encode()); err != nil {
				t.Error(err)
			}
		})
		if _, err := Alloc[byte](s, 1); !errors.Is(err, ErrSidecarGone) {
			t.Errorf("%s: %v, want ErrSidecarGone", what, err)
		}
		wait()
	}
}
