package rdmavm

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCopiedLink: the machine gets the file to which a symbolic link refers, since the link's
// target exists only on the host.
func TestCopiedLink(t *testing.T) {
	dir := t.TempDir()
	file, link, to := filepath.Join(dir, "lib.so.1.2"), filepath.Join(dir, "lib.so.1"), filepath.Join(dir, "copy")
	err := os.WriteFile(file, []byte("content"), 0o600)
	if err == nil {
		err = os.Symlink(filepath.Base(file), link)
	}
	if err == nil {
		err = copyFile(to, link)
	}
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(to); err != nil || !st.Mode().IsRegular() {
		t.Errorf("%v, %v", st, err)
	}
}
