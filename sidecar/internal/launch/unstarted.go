package launch

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Advise adds what to do to the failure to find or start a program. A lock that another process
// has is EAGAIN, too: that is a limit of processes only where one is started.
func Advise(err error) error {
	var p *os.PathError
	var name *exec.Error
	switch {
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w; raise the limit of open files (ulimit -n)", err)
	case errors.As(err, &name) && errors.Is(name, fs.ErrPermission):
		return fmt.Errorf("%w; make it executable (chmod +x), or give its interpreter and its name, as in: python3 %s", err, name.Name)
	case !errors.As(err, &p) || p.Op != "fork/exec":
		return err
	case errors.Is(p, unix.EAGAIN):
		return fmt.Errorf("%w; raise the limit of processes (ulimit -u, or the container's)", err)
	}
	if why := unstarted(p.Path, p.Err); why != "" {
		return &unstartedError{text: why, cause: err}
	}
	return err
}

// unstartedError is the failure to start a program, with the reason that its file shows.
type unstartedError struct {
	text  string
	cause error
}

func (e *unstartedError) Error() string { return e.text }
func (e *unstartedError) Unwrap() error { return e.cause }

// unstarted says why the kernel does not start a program, by what its file begins with; empty: the
// kernel's error says it.
func unstarted(path string, err error) string {
	f, openErr := os.Open(path)
	if openErr != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, 256)        // what the kernel looks at (BINPRM_BUF_SIZE)
	n, readErr := io.ReadFull(f, head)
	if readErr != nil && !errors.Is(readErr, io.EOF) && !errors.Is(readErr, io.ErrUnexpectedEOF) {
		return ""
	}
	head = head[:n]
	missing, format := errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOEXEC)
	switch {
	case !missing && !format:
		return ""
	case bytes.HasPrefix(head, []byte("#!")):
		return badScript(path, head, err)
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return badELF(path, f, missing)
	case missing:
		return ""
	case len(head) == 0:
		return path + " is empty"
	}
	return path + " is neither a program nor a script: the first line of a script names its interpreter, as in #!/bin/sh"
}

// badScript is what is wrong with the first line of a script.
func badScript(path string, head []byte, err error) string {
	line, _, _ := bytes.Cut(head[len("#!"):], []byte("\n"))
	if bytes.HasSuffix(line, []byte("\r")) {
		return path + " has the line ends of Windows (CR LF), and its first line names an interpreter that ends with CR: convert it, for example with dos2unix"
	}
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return path + ": its first line names no interpreter after #!"
	}
	reason := "cannot be started: " + err.Error()
	if _, there := os.Stat(words[0]); there != nil {
		reason = "does not exist here"
	}
	return fmt.Sprintf("%s: its interpreter %q, which its first line names, %s", path, words[0], reason)
}

// badELF is what is wrong with a program: another machine's, no whole file, or a loader that is
// missing.
func badELF(path string, r io.ReaderAt, missing bool) string {
	f, err := elf.NewFile(r)
	if err != nil {
		return fmt.Sprintf("%s is damaged, or no whole program: %v", path, err)
	}
	if here := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]; f.Machine != here {
		return fmt.Sprintf("%s is a program for another machine: for %v, and this one is %v (%s)", path, f.Machine, here, runtime.GOARCH)
	}
	if !missing {
		return path + " is damaged, or no whole program"
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz > unix.PathMax {
			continue
		}
		loader := make([]byte, p.Filesz)
		if _, err := io.ReadFull(p.Open(), loader); err == nil {
			return fmt.Sprintf("%s needs the dynamic loader %s, which does not exist here: it was built for another C library, as musl is one and glibc another", path, bytes.TrimRight(loader, "\x00"))
		}
	}
	return ""
}
