package engine

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// TestFirstDescriptorSeals checks that an application can take away pages of its memory
// until it has submitted a descriptor, and not after that.
func TestFirstDescriptorSeals(t *testing.T) {
	_, socket := served(t, 1)
	_, fds := joinWith(t, socket, shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesRequired})
	mem, err := segment.Open(fds[0], segment.DefaultGeometry.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = segment.Unmap(mem) }() // not needed after the test
	control, err := segment.Read(mem)
	if err != nil {
		t.Fatal(err)
	}
	punch := func() error {
		return unix.Fallocate(fds[1], unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
	}
	if err := punch(); err != nil {
		t.Fatal(err)
	}
	b, n := control.SubmitRing()
	submit, err := ring.NewProducer(b, n)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := submit.Push(&shm.Descriptor{Op: shm.OpProbe, Flags: shm.FlagNow}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := wake.Ring(fds[2]); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(timeout); !errors.Is(punch(), unix.EPERM); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the memory is not sealed")
		}
	}
}
