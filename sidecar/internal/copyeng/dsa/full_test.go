package dsa

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/dsa/dsamodel"
)

// TestFullSharedQueue stops the device, submits until the queue is full, and lets it go on.
func TestFullSharedQueue(t *testing.T) {
	s := &setup{options: dsamodel.Options{SendBuffer: 1}, cfg: Config{Pending: 128}, most: 1}
	c := open(t, s)
	s.device.Pause(true)
	const n = 40
	dst, src := make([][]byte, n), pattern(5000, 1)
	done := mustEnd(t)
	for i := range dst {
		dst[i] = make([]byte, 5000)
		if !c.Submit(dst[i], src, uint64(i)) {
			t.Fatal("refused")
		}
		c.Poll(done)
	}
	if c.Stats().Refusals == 0 {
		t.Fatalf("the queue was never full: %+v", c.Stats())
	}
	writes := c.Stats().Writes
	for range 100 {
		c.Poll(done)
	}
	if now := c.Stats().Writes; now != writes {
		t.Errorf("%d writes to a queue that is full of own descriptors", now-writes)
	}
	s.device.Pause(false)
	finish(t, c, n, done)
	for i := range dst {
		if !bytes.Equal(dst[i], src) {
			t.Errorf("copy %d is wrong", i)
		}
	}
	if s := c.Stats(); s.Fallbacks != 0 || c.Err() != nil {
		t.Errorf("%+v, %v", s, c.Err())
	}
}

// fullQueue is a queue that other processes keep full.
type fullQueue struct{ err error }

func (q fullQueue) Write([]byte) (int, error) { return 0, q.err }
func (q fullQueue) Failed() bool              { return false }
func (q fullQueue) Close() error              { return nil }

// TestQueueOfOthers checks that copies end over a queue that never takes a descriptor.
func TestQueueOfOthers(t *testing.T) {
	c := openOver(t, fullQueue{unix.EAGAIN})
	dst, src := make([]byte, 5000), pattern(5000, 1)
	for range 3 {
		clear(dst)
		if !c.Submit(dst, src, 0) {
			t.Fatal("refused")
		}
		finish(t, c, 1, mustEnd(t))
		if !bytes.Equal(dst, src) {
			t.Error("wrong bytes")
		}
	}
	if s := c.Stats(); s.Refusals != 3*refusalsMax || s.Fallbacks != 3 || c.Err() != nil {
		t.Errorf("%+v, %v", s, c.Err())
	}
}

// TestErrorsOfWrite checks each error that ends the channel.
func TestErrorsOfWrite(t *testing.T) {
	for _, e := range []error{unix.EPERM, unix.EINVAL, unix.EFAULT, unix.ENODEV, unix.EIO} {
		c := openOver(t, fullQueue{e})
		dst, src := make([]byte, 5000), pattern(5000, 1)
		for i := range uint64(3) {
			if !c.Submit(dst, src, i) {
				t.Fatal("refused")
			}
		}
		finish(t, c, 3, mustEnd(t))
		if !bytes.Equal(dst, src) || !errors.Is(c.Err(), e) {
			t.Errorf("%v, want %v, or wrong bytes", c.Err(), e)
		}
	}
}

// openOver opens a channel over a queue of 16 entries.
func openOver(t testing.TB, q Queue) *Channel {
	t.Helper()
	c, err := Open(Config{
		File: "/dev/dsa/wq0.0", Root: tree(t, dsamodel.Options{Size: 16}),
		Open: func(string) (Queue, error) { return q, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
