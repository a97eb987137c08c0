package launch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAdvice checks that an error that means a limit of processes has the remedy, and that
// the same error of a lock has none.
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
	for _, program := range []string{"nowhere -x", "/nowhere/prog -x"} {
		if _, err := exec.LookPath(program); !strings.HasSuffix(Advise(err).Error(), "no shell takes it apart: a command is a list of words, as in ["+strings.ReplaceAll(program, " ", ", ")+"]") {
			t.Error(Advise(err))
		}
	}
}

// elfFile returns an ELF file of a class and a machine that has only a loader.
func elfFile(class elf.Class, machine elf.Machine, typ elf.Type, loader string) []byte {
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	n := len(loader) + 1
	parts := []any{
		elf.Header64{Ident: ident, Type: uint16(typ), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1},
		elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(n), Memsz: uint64(n)},
	}
	if class == elf.ELFCLASS32 {
		parts = []any{
			elf.Header32{Ident: ident, Type: uint16(typ), Machine: uint16(machine), Version: 1, Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 1},
			elf.Prog32{Type: uint32(elf.PT_INTERP), Off: 52 + 32, Filesz: uint32(n), Memsz: uint32(n)},
		}
	}
	var b []byte
	for _, part := range parts {
		b, _ = binary.Append(b, binary.LittleEndian, part) // it fails for no such part
	}
	return append(b, loader+"\x00"...)
}

// TestUnstarted checks that the error of a file that the kernel does not start has its name
// once, and the fault.
func TestUnstarted(t *testing.T) {
	here := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	native := func(loader string) []byte { return elfFile(elf.ELFCLASS64, here, elf.ET_DYN, loader) }
	dir := t.TempDir()
	script, inner, loop := filepath.Join(dir, "script"), filepath.Join(dir, "inner"), filepath.Join(dir, "loop")
	plain, text := filepath.Join(dir, "plain"), filepath.Join(dir, "text")
	if err := errors.Join(
		os.WriteFile(script, []byte("#!/usr/bin/nowhere\n"), 0o700),           //nolint:gosec // it is run
		os.WriteFile(inner, []byte("#!"+script+" -x\n"), 0o700),               //nolint:gosec // it is run
		os.WriteFile(loop, []byte("#!"+loop+"\n"), 0o700),                     //nolint:gosec // it is run
		os.WriteFile(text, bytes.Repeat([]byte("no ELF file\n"), 100), 0o700), //nolint:gosec // it is run
		os.WriteFile(plain, nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file  []byte
		cause error // nil: the one of starting it
		want  string
	}{
		"interpreter":            {[]byte("#!/usr/bin/nowhere -u\nx\n"), nil, `its interpreter "/usr/bin/nowhere", which its first line names, does not exist here`},
		"interpreter, no folder": {[]byte("#!" + plain + "/sh\n"), nil, `/plain/sh", which its first line names, cannot be found: not a directory`},
		"interpreter, directory": {[]byte("#!" + dir + "\n"), nil, `its interpreter "` + dir + `", which its first line names, is a directory`},
		"interpreter, mode":      {[]byte("#!" + plain + "\n"), nil, `/plain", which its first line names, is not executable`},
		"interpreter's":          {[]byte("#!" + inner + "\n"), nil, ": the interpreter that its first line names cannot be started: " + inner + ": the interpreter that its first line names cannot be started: " + script + `: its interpreter "/usr/bin/nowhere", which its first line names, does not exist here`},
		"interpreters":           {[]byte("#!" + loop + "\n"), nil, "is a script whose interpreter is a script, and so on: the kernel follows at most 5"},
		"no interpreter":         {[]byte("#! \n"), nil, "its first line names no interpreter after #!"},
		"windows":                {[]byte("#!/bin/sh\r\nexit 0\r\n"), nil, "has the line ends of Windows (CR LF)"},
		"windows, argument":      {[]byte("#!/usr/bin/nowhere -u\r\nx\r\n"), nil, `its interpreter "/usr/bin/nowhere", which its first line names, does not exist here`},
		"long":                   {[]byte("#!/" + strings.Repeat("d/", 127) + "sh\n"), nil, "its first line is longer than the 256 bytes that the kernel reads, which end within the name of its interpreter"},
		"long, arguments":        {[]byte("#!/usr/bin/nowhere " + strings.Repeat("x ", 127) + "sh\n"), nil, `its interpreter "/usr/bin/nowhere", which its first line names, does not exist here`},
		"byte order mark":        {[]byte("\xef\xbb\xbf#!/bin/sh\n"), nil, "begins with a byte order mark (UTF-8), before the #! of its first line"},
		"no first line":          {[]byte("echo hi\n"), nil, "is neither a program nor a script: the first line of a script names its interpreter, as in #!/bin/sh"},
		"empty":                  {nil, nil, "is empty"},
		"open":                   {nil, unix.ETXTBSY, "is open for writing"},
		"truncated":              {native("/lib/ld.so")[:40], nil, "is damaged, or no whole program"},
		"no loader":              {native(""), unix.ENOEXEC, "is damaged, or no whole program"},
		"another":                {elfFile(elf.ELFCLASS64, elf.EM_RISCV, elf.ET_DYN, "/lib/ld-nowhere.so.1"), nil, "is a program for another machine: for EM_RISCV, and this one is "},
		"object":                 {elfFile(elf.ELFCLASS64, here, elf.ET_REL, "/lib/ld.so"), nil, "is no program: it is an ELF file of type ET_REL"},
		"another libc":           {native("/lib/ld-nowhere.so.1"), nil, "needs the dynamic loader /lib/ld-nowhere.so.1, which does not exist here: it was built for another C library"},
		"32 bits":                {elfFile(elf.ELFCLASS32, elf.EM_386, elf.ET_DYN, "/lib/ld-nowhere.so.2"), unix.ENOENT, "needs the dynamic loader /lib/ld-nowhere.so.2, which does not exist here: it is a program for another machine that this kernel runs"},
		"loader, directory":      {native(dir), nil, "needs the dynamic loader " + dir + ", which is a directory"},
		"loader, mode":           {native(plain), nil, "/plain, which is not executable"},
		"loader, short":          {native(script), nil, "/script, which is no dynamic loader of its machine"},
		"loader, no ELF file":    {native(text), nil, "/text, which is no dynamic loader of its machine"},
	} {
		path := filepath.Join(t.TempDir(), "prog")
		if err := os.WriteFile(path, c.file, 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		cause := exec.Command(path).Start()
		if c.cause != nil {
			cause = &os.PathError{Op: "fork/exec", Path: path, Err: c.cause}
		}
		err := Advise(cause)
		if cause == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), path) != 1 || !errors.Is(err, cause) {
			t.Errorf("%s: %v; want %q, and the name once", name, err, c.want)
		}
	}
}

// TestIrregular checks that the error of a program that is no regular file has its kind,
// without waiting for it.
func TestIrregular(t *testing.T) {
	dir := t.TempDir()
	fifo, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err = errors.Join(err, unix.Mkfifo(fifo, 0o700)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nothing connects
	for path, want := range map[string]string{dir: "is a directory", fifo: "is a FIFO", socket: "is a socket", os.DevNull: "is a device"} {
		said := make(chan error, 2)
		go func() {
			_, found := exec.LookPath(path)
			said <- Advise(&os.PathError{Op: "fork/exec", Path: path, Err: unix.EACCES})
			if errors.Is(found, fs.ErrPermission) {
				said <- Advise(found)
			}
			close(said)
		}()
		for {
			var err error
			select {
			case err = <-said:
			case <-time.After(timeout):
				t.Fatalf("%s: still waiting", path)
			}
			if err == nil {
				break
			}
			if text := err.Error(); !strings.Contains(text, want) || strings.Count(text, path) != 1 || strings.Contains(text, "chmod") {
				t.Errorf("%v; want %q, and the name once", err, want)
			}
		}
		f, err := OpenProgram(path)
		if _, named := errors.AsType[*os.PathError](err); !named || f != nil {
			t.Errorf("%s can be opened: %v", path, err)
		}
	}
}

// TestForbidden checks that the mode of a file is not blamed for what its file system
// forbids.
func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		mode   fs.FileMode
		mount  int64
		access error
		want   string
	}{
		{0o755, unix.ST_NOEXEC, unix.EACCES, "is on a file system that is mounted with noexec"},
		{0o644, 0, unix.EACCES, "is not executable"},
		{fs.ModeDir | 0o755, unix.ST_NOEXEC, nil, "is a directory"},
		{0o755, 0, unix.EPERM, ""},
		{0o755, 0, nil, ""},
	} {
		if got := forbidden(c.mode, c.mount, c.access); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v, %#x, %v: %q, want %q", c.mode, c.mount, c.access, got, c.want)
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

// TestHugeELF checks that the sizes in a damaged file take no memory.
func TestHugeELF(t *testing.T) {
	const huge = 64 << 20
	path := filepath.Join(t.TempDir(), "prog")
	var file []byte
	for _, part := range []any{
		elf.Header64{Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64 + 2*64, Shoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 0xffff, Shentsize: 64, Shnum: 2, Shstrndx: 1},
		elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Size: huge},
		elf.Prog64{Type: uint32(elf.PT_INTERP), Filesz: huge},
	} {
		file, _ = binary.Append(file, binary.LittleEndian, part) // it fails for no such part
	}
	if err := errors.Join(os.WriteFile(path, file, 0o700), os.Truncate(path, huge)); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := Advise(&os.PathError{Op: "fork/exec", Path: path, Err: unix.ENOEXEC})
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 2<<20 || !strings.Contains(err.Error(), "is damaged, or no whole program") {
		t.Errorf("%d bytes for: %v", took, err)
	}
}
