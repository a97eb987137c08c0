package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAdvice: a limit of which a process could not be started is said with what raises
// it; the same number of a lock is none.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&os.PathError{Op: "fork/exec", Path: "x", Err: unix.EMFILE}, "raise the limit of open files (ulimit -n)"},
		{&os.PathError{Op: "fork/exec", Path: "x", Err: unix.EAGAIN}, "raise the limit of processes (ulimit -u, or the container's)"},
		{&os.PathError{Op: "flock", Path: "x", Err: unix.EAGAIN}, ""},
		{unix.EAGAIN, ""},
	} {
		wrapped := fmt.Errorf("starting: %w", c.err)
		if got := Advise(wrapped); !errors.Is(got, c.err) || !strings.HasSuffix(got.Error(), c.want) || c.want == "" && got.Error() != wrapped.Error() {
			t.Errorf("%v, want %q", got, c.want)
		}
	}
	if err := Advise(nil); err != nil {
		t.Error(err)
	}
}

// TestUnstarted: a file that the kernel does not start is named once, with what is wrong with it.
func TestUnstarted(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	other := append([]byte{}, self...)
	binary.LittleEndian.PutUint16(other[18:], 0xf3) // RISC-V
	loader := append([]byte{}, self[:4096]...)      // a header, and a loader that is nowhere
	binary.LittleEndian.PutUint16(loader[56:], 1)
	binary.LittleEndian.PutUint16(loader[60:], 0) // no sections
	binary.LittleEndian.PutUint64(loader[40:], 0)
	at := binary.LittleEndian.Uint64(loader[32:])
	copy(loader[2048:], "/lib/ld-nowhere.so.1\x00")
	binary.LittleEndian.PutUint32(loader[at:], 3)
	binary.LittleEndian.PutUint64(loader[at+8:], 2048)
	binary.LittleEndian.PutUint64(loader[at+32:], 21)
	binary.LittleEndian.PutUint64(loader[at+40:], 21)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"interpreter":   {[]byte("#!/usr/bin/nowhere -u\nx\n"), `its interpreter "/usr/bin/nowhere", which its first line names, does not exist here`},
		"env":           {[]byte("#! \n"), "its first line names no interpreter after #!"},
		"windows":       {[]byte("#!/bin/sh\r\nexit 0\r\n"), "has the line ends of Windows (CR LF)"},
		"no first line": {[]byte("echo hi\n"), "is neither a program nor a script: the first line of a script names its interpreter, as in #!/bin/sh"},
		"empty":         {nil, "is empty"},
		"truncated":     {self[:100], "is damaged, or no whole program"},
		"another":       {other, "is a program for another machine: for EM_RISCV, and this one is "},
		"another libc":  {loader, "needs the dynamic loader /lib/ld-nowhere.so.1, which does not exist here"},
	} {
		path := filepath.Join(t.TempDir(), "prog")
		if err := os.WriteFile(path, c.file, 0o700); err != nil {
			t.Fatal(err)
		}
		cause := exec.Command(path).Start()
		err := Advise(cause)
		if cause == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), path) != 1 || !errors.Is(err, cause) {
			t.Errorf("%s: %v; want %q, and the name once", name, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath(path); !strings.Contains(Advise(err).Error(), "permission denied; make it executable (chmod +x)") {
		t.Errorf("not executable: %v", Advise(err))
	}
}
