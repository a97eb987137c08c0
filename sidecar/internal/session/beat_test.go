package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestBeat checks that the file of a beat changes, replaces that of a killed sidecar without following
// a link, and is removed at the end.
func TestBeat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	other, name := path+".other", path+names.BeatSuffix
	if err := errors.Join(os.WriteFile(other, []byte("other"), 0o600), os.Symlink(other, name)); err != nil {
		t.Fatal(err)
	}
	b, err := startBeat(path, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for len(seen) < 3 { // the test's own time limit ends a beat that does not change
		raw, err := os.ReadFile(name)
		if err != nil || len(raw) != shm.BeatBytes {
			t.Fatalf("%d bytes, %v; want %d", len(raw), err, shm.BeatBytes)
		}
		seen[string(raw)] = true
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
	if raw, err := os.ReadFile(other); string(raw) != "other" {
		t.Errorf("a linked file has changed: %q, %v", raw, err)
	}
}
