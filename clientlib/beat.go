package outrigger

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// beatEvery is the interval in which a client that waits for its Welcome reads the sidecar's beat.
// Tests set another value.
var beatEvery = time.Second

// beat decides whether the sidecar runs, while a client waits for its Welcome. It counts the readings
// in a row that were the same, and not the time: a pod that was frozen as a whole has lost none.
type beat struct {
	path  string // of the socket
	last  []byte
	polls int
}

// read reads the beat once. It returns an error if the sidecar is stopped. A sidecar of an earlier
// release has no beat: nothing is known of it.
func (b *beat) read() error {
	now := b.number()
	if now == nil || !bytes.Equal(now, b.last) {
		b.last, b.polls = now, 0
		return nil
	}
	if b.polls++; b.polls < shm.BeatPolls {
		return nil
	}
	return fmt.Errorf("the sidecar at %s listens, and has shown no sign of life for %d s: it is stopped, by a signal, a debugger or a freezer", b.path, shm.BeatPolls)
}

// number returns the content of the file, or nil if there is none.
func (b *beat) number() []byte {
	f, err := os.OpenFile(b.path+names.BeatSuffix, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // nothing was written
	var now [shm.BeatBytes]byte
	if n, _ := f.ReadAt(now[:], 0); n < len(now) {
		return nil
	}
	return now[:]
}
