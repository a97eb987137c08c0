package mpi

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLeftoversAreRemoved checks that directories of killed processes are removed by the
// next process, at whatever time they were killed, and that those in use, or of other
// users, are not.
func TestLeftoversAreRemoved(t *testing.T) {
	in := t.TempDir()
	make1 := func(prefix string) *folder {
		t.Helper()
		f, err := makeFolder(in, prefix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.path, "segment"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	var gone, kept []string
	for _, prefix := range []string{prefixPMIx, prefixMPIRun} {
		killed, living := make1(prefix), make1(prefix)
		if err := killed.lock.Close(); err != nil { // as the kernel does
			t.Fatal(err)
		}
		defer func() { _ = living.remove() }()
		gone, kept = append(gone, killed.path, killed.lock.Name()), append(kept, living.path, living.lock.Name())
	}
	// Processes killed before they made the directory, and while they removed it.
	begun := make1(prefixPMIx)
	if err := errors.Join(os.RemoveAll(begun.path), begun.lock.Close()); err != nil {
		t.Fatal(err)
	}
	gone = append(gone, begun.lock.Name())
	other := filepath.Join(in, "others")
	link := filepath.Join(in, prefixPMIx+"link"+folderLock)
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other+folderLock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other+folderLock, link); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(in, prefixPMIx+"pipe"+folderLock)
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	removeLeftovers(in)
	for _, path := range gone {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	for _, path := range append(kept, other, other+folderLock, link, pipe) {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone: %v", path, err)
		}
	}
}

// TestFoldersDuringRemoval checks that a directory that was made exists, however many
// processes search leftovers meanwhile.
func TestFoldersDuringRemoval(t *testing.T) {
	in := t.TempDir()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 200 {
				removeLeftovers(in)
				f, err := makeFolder(in, prefixPMIx)
				if err != nil {
					t.Error(err)
					return
				}
				removeLeftovers(in)
				for _, path := range []string{f.path, f.lock.Name()} {
					if _, err := os.Stat(path); err != nil {
						t.Error(err)
					}
				}
				if err := f.remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if left, err := os.ReadDir(in); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestLeftoversOfAnyTime checks that a process that is killed at any time leaves nothing
// that the next one does not remove.
func TestLeftoversOfAnyTime(t *testing.T) {
	const role = "OUTRIGGER_TEST_FOLDERS"
	if in := os.Getenv(role); in != "" {
		for {
			removeLeftovers(in)
			f, err := makeFolder(in, prefixMPIRun)
			if err == nil {
				err = f.remove()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	in := t.TempDir()
	for i := range 40 {
		c := exec.Command(os.Args[0], "-test.run=^TestLeftoversOfAnyTime$") //nolint:gosec // this test
		c.Env = append(os.Environ(), role+"="+in)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			if made, err := os.ReadDir(in); err != nil || len(made) > 0 {
				break
			}
		}
		time.Sleep(time.Duration(i) * 37 * time.Microsecond)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if c.Wait() == nil {
			t.Fatal("it was not killed")
		}
		removeLeftovers(in)
		if left, err := os.ReadDir(in); err != nil || len(left) != 0 {
			t.Fatalf("killed %d times: left %v, %v", i+1, left, err)
		}
	}
}
