package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Beat shows clients that this process runs while they wait for their Welcome (LAYOUT.md §2): it
// changes the number in a file next to the socket. A client that waits for a stopped sidecar gives up.
type Beat struct {
	file *os.File
	stop chan struct{}
	done sync.WaitGroup
}

// beatEvery is the time between two changes (LAYOUT.md §2).
const beatEvery = 5 * time.Second

// StartBeat makes the file of the socket at path, which Bind has opened, and changes it until Stop.
func StartBeat(path string) (*Beat, error) { return startBeat(path, beatEvery) }

func startBeat(path string, every time.Duration) (*Beat, error) {
	name := path + names.BeatSuffix
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a sidecar that was killed
		return nil, fmt.Errorf("session: %w", err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	b := &Beat{file: f, stop: make(chan struct{})}
	err = errors.Join(f.Chmod(0o644), b.write(1)) // clients of other users read it
	if err != nil {
		return nil, fmt.Errorf("session: %w", errors.Join(err, f.Close(), os.Remove(name)))
	}
	b.done.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for n := uint64(2); ; n++ {
			select {
			case <-t.C:
				if b.write(n) != nil { // of a full file system, for example: clients would take an old number for a stop
					_ = b.file.Truncate(0)
				}
			case <-b.stop:
				return
			}
		}
	})
	return b, nil
}

func (b *Beat) write(n uint64) error {
	_, err := b.file.WriteAt(binary.LittleEndian.AppendUint64(nil, n), 0)
	return err
}

// Stop ends the beat, if there is one, and removes its file. It is called once.
func (b *Beat) Stop() error {
	if b == nil {
		return nil
	}
	close(b.stop)
	b.done.Wait()
	err := os.Remove(b.file.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, b.file.Close())
}
