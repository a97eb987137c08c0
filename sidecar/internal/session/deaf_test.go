package session

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// TestLastDescriptorsBehindUnreadCompletions checks that the descriptors that an application
// published before it ended are taken, however many completions it has not read: the last
// one may be a detach.
func TestLastDescriptorsBehindUnreadCompletions(t *testing.T) {
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
		t.Fatal("completions are kept for an application that has ended", err)
	}
}

// newTestSession makes a session over memory of the test.
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
