package wake

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWakeBeforeWaitIsNotLost: if the word changes before the wait, no wake is needed; the waiter
// does not sleep on the old value.
func TestWakeBeforeWaitIsNotLost(t *testing.T) {
	word := uint32(1)
	for range 1000 {
		atomic.StoreUint32(&word, 0)
		if err := Wake(&word); err != nil {
			t.Fatal(err)
		}
		if err := Wait(&word, 1, 0); err != nil { // without a limit: a lost wake-up would hang
			t.Fatal(err)
		}
	}
}

// TestEveryTurnIsSeen passes a turn back and forth many times with the protocol of LAYOUT §8:
// a lost wake-up would hang.
func TestEveryTurnIsSeen(t *testing.T) {
	const turns = 20_000
	var turn, waiting [2]uint32 // the number of each player's last turn; whether the player may be blocked
	play := func(me int) {
		for n := uint32(1); n <= turns; n++ {
			if me == 1 { // player 0 moves first
				await(&turn[1], &waiting[1], n)
			}
			other := 1 - me
			atomic.StoreUint32(&turn[other], n)
			if atomic.SwapUint32(&waiting[other], 0) != 0 {
				if err := Wake(&waiting[other]); err != nil {
					t.Error(err)
				}
			}
			if me == 0 {
				await(&turn[0], &waiting[0], n)
			}
		}
	}
	var both sync.WaitGroup
	both.Go(func() { play(0) })
	both.Go(func() { play(1) })
	both.Wait()
}

// await is the client's side: set the word, poll once more, wait.
func await(turn, waiting *uint32, n uint32) {
	for atomic.LoadUint32(turn) != n {
		atomic.StoreUint32(waiting, 1)
		if atomic.LoadUint32(turn) == n {
			break
		}
		_ = Wait(waiting, 1, 0) // the loop checks the turn again
	}
	atomic.StoreUint32(waiting, 0)
}

func TestTimeout(t *testing.T) {
	word := uint32(7)
	const limit = 20 * time.Millisecond
	begin := time.Now()
	if err := Wait(&word, 7, limit); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(begin); waited < limit {
		t.Errorf("waited %v, want at least %v", waited, limit)
	}
}

// TestAcrossMappings: the two sides have the word at different addresses.
func TestAcrossMappings(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // the mappings stay
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	var words [2]*uint32
	for i := range words {
		mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(mem) }() // nothing refers to it
		words[i] = word(mem)
	}
	*words[0] = 1
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && atomic.LoadUint32(words[0]) == 1 {
			err = Wait(words[0], 1, 0)
		}
		done <- err
	}()
	atomic.StoreUint32(words[1], 0)
	if err := errors.Join(Wake(words[1]), <-done); err != nil {
		t.Fatal(err)
	}
}

func TestDoorbell(t *testing.T) {
	fd, err := NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	if rung(t, fd) {
		t.Error("a new doorbell is rung")
	}
	for range 3 {
		if err := Ring(fd); err != nil {
			t.Fatal(err)
		}
	}
	if !rung(t, fd) {
		t.Error("a rung doorbell is silent")
	}
	// A client may have filled the counter: Ring neither fails nor blocks.
	if _, err := unix.Write(fd, []byte{0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if err := Ring(fd); err != nil || !rung(t, fd) {
		t.Errorf("a full doorbell: %v", err)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	if err := Ring(fd); !errors.Is(err, unix.EBADF) {
		t.Errorf("a closed doorbell: %v, want EBADF", err)
	}
}

func rung(t *testing.T, fd int) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}
