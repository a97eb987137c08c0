package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Install copies this process's executable, and the files more, into dir, so that
// containers of other images can run it. It makes dir if necessary, and returns the path of
// the executable's copy. It replaces an existing copy atomically, also while the copy runs.
func Install(dir string, more ...string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("install: this program's own file: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // other users run what is in it
		return "", fmt.Errorf("install: %w: the directory must be a volume that this user may write to", err)
	}
	for _, from := range append(more, self) {
		if err := replace(filepath.Join(dir, filepath.Base(from)), from); err != nil {
			return "", fmt.Errorf("install: %w", err)
		}
	}
	return filepath.Join(dir, filepath.Base(self)), nil
}

// replace makes to a copy of from that all users may run. Readers see either the old file or the
// complete new one.
func replace(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(out.Name()) // incomplete
		}
	}()
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Chmod(0o555), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}
