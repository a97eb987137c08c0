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
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Advise adds a remedy to the error of finding or starting a program. EAGAIN means a limit
// of processes only when a process was started: a lock that another process holds causes
// it, too.
func Advise(err error) error {
	var p *os.PathError
	var name *exec.Error
	switch {
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w; raise the limit of open files (ulimit -n)", err)
	case errors.As(err, &name):
		return unfound(name, err)
	case !errors.As(err, &p) || p.Op != "fork/exec":
		return err
	case errors.Is(p, unix.EAGAIN):
		return fmt.Errorf("%w; raise the limit of processes (ulimit -u, or the container's)", err)
	}
	if why := unstarted(p.Path, p.Err, 0); why != "" {
		return &unstartedError{text: why, cause: err}
	}
	return err
}

// unfound adds a remedy to the error of finding a program.
func unfound(e *exec.Error, err error) error {
	if words := strings.Fields(e.Name); len(words) > 1 && CannotRun(e) == exitNotFound {
		return fmt.Errorf("%w; its name has spaces in it, and no shell takes it apart: a command is a list of words, as in [%s]", err, strings.Join(words, ", "))
	}
	if !errors.Is(e, fs.ErrPermission) {
		return err
	}
	switch why := fault(e.Name); why {
	case "":
		return err
	case notExecutable:
		return fmt.Errorf("%w; make it executable (chmod +x), or give its interpreter and its name, as in: python3 %s", err, e.Name)
	default:
		return fmt.Errorf("%w; it %s", err, why)
	}
}

// unstartedError is the error of starting a program, with the reason found in its file.
type unstartedError struct {
	text  string
	cause error
}

func (e *unstartedError) Error() string { return e.text }
func (e *unstartedError) Unwrap() error { return e.cause }

// shown are the errors of the kernel whose reason can be found in the program's file.
var shown = []error{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ENOEXEC, unix.ELOOP, unix.EIO, unix.ELIBBAD, unix.ETXTBSY}

// maxScripts is the number of scripts that the kernel follows, each the interpreter of the
// previous one.
const maxScripts = 5

// headSize is the number of bytes in which the kernel searches the first line of a script
// (BINPRM_BUF_SIZE).
const headSize = 256

// unstarted returns the reason why the kernel does not start a program, found in its file.
// It returns an empty text if the kernel's error is sufficient. scripts is the number of
// scripts that lead to the program.
func unstarted(path string, cause error, scripts int) string {
	if !slices.ContainsFunc(shown, func(e error) bool { return errors.Is(cause, e) }) {
		return ""
	}
	if why := fault(path); why != "" {
		return path + " " + why
	}
	if errors.Is(cause, unix.ETXTBSY) {
		return path + ", or its interpreter, is open for writing: start it when the program that writes it has closed it"
	}
	f, err := OpenProgram(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	head := make([]byte, headSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return badScript(path, head, cause, scripts)
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return badELF(path, f, cause)
	case !errors.Is(cause, unix.ENOEXEC):
		return ""
	case len(head) == 0:
		return path + " is empty"
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf#!")):
		return path + " begins with a byte order mark (UTF-8), before the #! of its first line: save it without one"
	}
	return path + " is neither a program nor a script: the first line of a script names its interpreter, as in #!/bin/sh"
}

// badScript returns what is wrong with the first line of a script.
func badScript(path string, head []byte, cause error, scripts int) string {
	line, _, whole := bytes.Cut(head[len("#!"):], []byte("\n"))
	words := strings.FieldsFunc(string(line), func(r rune) bool { return r == ' ' || r == '\t' || r == 0 })
	if len(words) == 0 {
		return path + ": its first line names no interpreter after #!"
	}
	interpreter := words[0]
	if !whole && len(head) == headSize && len(words) == 1 && bytes.HasSuffix(line, []byte(interpreter)) {
		return fmt.Sprintf("%s: its first line is longer than the %d bytes that the kernel reads, which end within the name of its interpreter: give that a shorter path, for example by a symbolic link", path, headSize)
	}
	if strings.HasSuffix(interpreter, "\r") {
		return path + " has the line ends of Windows (CR LF), and its first line names an interpreter that ends with CR: convert it, for example with dos2unix"
	}
	why := fault(interpreter)
	switch {
	case why != "":
	case errors.Is(cause, unix.ELOOP):
		return fmt.Sprintf("%s: its interpreter %q is a script whose interpreter is a script, and so on: the kernel follows at most %d", path, interpreter, maxScripts)
	case scripts < maxScripts:
		if why := unstarted(interpreter, cause, scripts+1); why != "" {
			return fmt.Sprintf("%s: the interpreter that its first line names cannot be started: %s", path, why)
		}
	}
	if why == "" {
		why = "cannot be started: " + cause.Error()
	}
	return fmt.Sprintf("%s: its interpreter %q, which its first line names, %s", path, interpreter, why)
}

// badELF returns what is wrong with a program: it is for another machine, is incomplete, or
// has no usable loader.
func badELF(path string, r io.ReaderAt, cause error) string {
	h, headers, err := ReadELF(r)
	here := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	switch {
	case err != nil:
		return fmt.Sprintf("%s is damaged, or no whole program: %v", path, err)
	case !errors.Is(cause, unix.ENOEXEC): // the kernel runs programs of its machine
		return badLoader(path, r, headers, cause, h.Machine == here)
	case h.Machine != here:
		return fmt.Sprintf("%s is a program for another machine: for %v, and this one is %v (%s)", path, h.Machine, here, runtime.GOARCH)
	case h.Type != elf.ET_EXEC && h.Type != elf.ET_DYN:
		return fmt.Sprintf("%s is no program: it is an ELF file of type %v, and a program's is ET_EXEC or ET_DYN", path, h.Type)
	}
	return path + " is damaged, or no whole program"
}

// badLoader returns what is wrong with the dynamic loader of a program, or an empty text if
// its file shows no fault.
func badLoader(path string, r io.ReaderAt, headers []elf.ProgHeader, cause error, native bool) string {
	i := slices.IndexFunc(headers, func(p elf.ProgHeader) bool { return p.Type == elf.PT_INTERP })
	if i < 0 || headers[i].Filesz > unix.PathMax {
		return ""
	}
	name := make([]byte, headers[i].Filesz)
	if _, err := r.ReadAt(name, int64(headers[i].Off)); err != nil { //nolint:gosec // a negative one is an error
		return ""
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	why := fault(string(name))
	switch {
	case why == missing && native:
		why += ": it was built for another C library, as musl is one and glibc another"
	case why == missing:
		why += ": it is a program for another machine that this kernel runs, whose C library is not installed"
	case why == "" && (errors.Is(cause, unix.EIO) || errors.Is(cause, unix.ELIBBAD)):
		why = "is no dynamic loader of its machine"
	case why == "":
		return ""
	}
	return fmt.Sprintf("%s needs the dynamic loader %s, which %s", path, name, why)
}
