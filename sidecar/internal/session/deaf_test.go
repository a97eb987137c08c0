package session

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// What an application said before it ended is taken, however many completions it
// has not read: its goodbye may be the last of it.
func TestLastWordsBehindUnreadCompletions(t *testing.T) {
	s, control := newTestSession(t)
	for range 1000 {
		if err := s.Complete(&shm.Descriptor{Op: shm.OpDone}); err != nil {
			t.Fatal(err)
		}
	}
	mem, n := control.SubmitRing()
	client, err := ring.NewProducer(mem, n)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := client.Push(&shm.Descriptor{Op: shm.OpDetach}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	var d shm.Descriptor
	if s.Next(&d) {
		t.Fatal("descriptors are taken from an application that does not read its completions")
	}
	s.Deafen()
	if !s.Next(&d) || d.Op != shm.OpDetach {
		t.Fatal("the goodbye is not found")
	}
	if left, err := s.Publish(); left || err != nil {
		t.Fatal("completions are kept for nobody", err)
	}
}

// newTestSession is a session over memory of the test's own.
func newTestSession(t *testing.T) (*Session, *segment.Control) {
	t.Helper()
	g := segment.Geometry{SubmitEntries: 16, CompleteEntries: 16, SlabBytes: 64 << 10}
	mem, err := unix.Mmap(-1, 0, g.Bytes(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	control, err := segment.Format(mem, g, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(control, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s, control
}
