package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstall checks that the copy is complete, that all users may run it, that a second
// call changes nothing, and that no other file is left in the directory.
func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "bin")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		path, err := Install(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) != filepath.Base(self) || st.Mode() != 0o555 || !bytes.Equal(got, want) {
			t.Errorf("%s has mode %v and %d bytes, want %d", path, st.Mode(), len(got), len(want))
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v in the directory, %v", list, err)
	}
}

// TestInstallMore checks that additional files are copied, too, and that a missing one is
// named.
func TestInstallMore(t *testing.T) {
	dir, from := t.TempDir(), filepath.Join(t.TempDir(), "library.so")
	if err := os.WriteFile(from, []byte("a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(dir, from); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "library.so")); err != nil || string(got) != "a library" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Install(dir, from+".none"); err == nil || !strings.Contains(err.Error(), "library.so.none") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestInstallWhereItCannot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(file); err == nil || !strings.Contains(err.Error(), "install: mkdir "+file) {
		t.Errorf("into a file: %v", err)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, filepath.Base(self)), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(dir); err == nil {
		t.Error("a directory was replaced")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}
