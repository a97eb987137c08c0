package mpi

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestLeftoversAreRemoved: folders whose process was killed are removed by the next one, and
// those in use, being made, or of others are not.
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
		gone, kept = append(gone, killed.path), append(kept, living.path)
	}
	made := filepath.Join(in, prefixPMIx+"without-a-lock")
	other := filepath.Join(in, "others")
	link := filepath.Join(in, prefixPMIx+"link")
	for _, dir := range []string{made, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(other, folderLock), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	removeLeftovers(in)
	for _, path := range gone {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	for _, path := range append(kept, made, other, filepath.Join(other, folderLock), link) {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone: %v", path, err)
		}
	}
}

// TestFoldersBesideRemoval: a folder that was made is there, however many others look for
// leftovers meanwhile.
func TestFoldersBesideRemoval(t *testing.T) {
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
				if _, err := os.Stat(filepath.Join(f.path, folderLock)); err != nil {
					t.Error(err)
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
