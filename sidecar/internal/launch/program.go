package launch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OpenProgram opens the file of a program for reading. It opens regular files only: to open
// or read a FIFO or a device may block without end, or have an effect. The path may name
// another file after Stat, so the open file is checked, too.
func OpenProgram(path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, irregular(path, st.Mode())
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err = f.Stat(); err == nil && !st.Mode().IsRegular() {
		err = irregular(path, st.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func irregular(path string, m fs.FileMode) error {
	return &os.PathError{Op: "open", Path: path, Err: fmt.Errorf("%s is no program", kind(m))}
}

// kind names the kind of a file that is not regular.
func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// Faults of files for which unfound and badLoader add a remedy.
const (
	missing       = "does not exist here"
	notExecutable = "is not executable"
)

// fault returns the reason why the kernel does not execute the file at a path. It returns
// an empty text if its kind, its mode and its file system permit it.
func fault(path string) string {
	st, err := os.Stat(path)
	var p *os.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing
	case errors.Is(err, fs.ErrPermission):
		return "is in a folder that this user may not search"
	case errors.As(err, &p):
		return "cannot be found: " + p.Err.Error()
	}
	var file unix.Statfs_t
	if err := unix.Statfs(path, &file); err != nil {
		file.Flags = 0 // not known
	}
	access := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
	return forbidden(st.Mode(), file.Flags, access)
}

// forbidden returns the fault of a file that exists.
func forbidden(m fs.FileMode, mount int64, access error) string {
	switch {
	case !m.IsRegular():
		return "is " + kind(m)
	case mount&unix.ST_NOEXEC != 0:
		return "is on a file system that is mounted with noexec: copy it to another one"
	case errors.Is(access, unix.EACCES): // another error is of a filter of system calls, not of the file
		return notExecutable
	}
	return ""
}

// headersMax bounds the program headers that are read from a file, in bytes: the kernel
// accepts no more.
const headersMax = 64 << 10

// ReadELF reads the header and the program headers of an ELF file.
func ReadELF(r io.ReaderAt) (elf.FileHeader, []elf.ProgHeader, error) {
	var ident [elf.EI_NIDENT]byte
	if _, err := r.ReadAt(ident[:], 0); err != nil {
		return elf.FileHeader{}, nil, err
	}
	h := elf.FileHeader{Class: elf.Class(ident[elf.EI_CLASS]), ByteOrder: binary.LittleEndian}
	if elf.Data(ident[elf.EI_DATA]) == elf.ELFDATA2MSB {
		h.ByteOrder = binary.BigEndian
	}
	switch {
	case !bytes.HasPrefix(ident[:], []byte(elf.ELFMAG)):
		return h, nil, errors.New("it is no ELF file")
	case h.Class == elf.ELFCLASS32:
		var raw elf.Header32
		if err := read(r, h.ByteOrder, 0, &raw); err != nil {
			return h, nil, err
		}
		h.Type, h.Machine = elf.Type(raw.Type), elf.Machine(raw.Machine)
		table, err := programs[elf.Prog32](r, h.ByteOrder, uint64(raw.Phoff), raw.Phnum)
		list := make([]elf.ProgHeader, len(table))
		for i, p := range table {
			list[i] = elf.ProgHeader{Type: elf.ProgType(p.Type), Off: uint64(p.Off), Vaddr: uint64(p.Vaddr), Filesz: uint64(p.Filesz)}
		}
		return h, list, err
	case h.Class == elf.ELFCLASS64:
		var raw elf.Header64
		if err := read(r, h.ByteOrder, 0, &raw); err != nil {
			return h, nil, err
		}
		h.Type, h.Machine = elf.Type(raw.Type), elf.Machine(raw.Machine)
		table, err := programs[elf.Prog64](r, h.ByteOrder, raw.Phoff, raw.Phnum)
		list := make([]elf.ProgHeader, len(table))
		for i, p := range table {
			list[i] = elf.ProgHeader{Type: elf.ProgType(p.Type), Off: p.Off, Vaddr: p.Vaddr, Filesz: p.Filesz}
		}
		return h, list, err
	}
	return h, nil, fmt.Errorf("its ELF class is %v, neither 32 nor 64 bits", h.Class)
}

// programs reads a table of program headers.
func programs[P any](r io.ReaderAt, order binary.ByteOrder, at uint64, n uint16) ([]P, error) {
	if size := binary.Size(*new(P)) * int(n); size > headersMax {
		return nil, fmt.Errorf("its program headers take %d bytes: at most %d may be", size, headersMax)
	}
	table := make([]P, n)
	if err := read(r, order, at, table); err != nil {
		return nil, err
	}
	return table, nil
}

// read reads a value of fixed size at an offset of a file.
func read(r io.ReaderAt, order binary.ByteOrder, at uint64, to any) error {
	return binary.Read(io.NewSectionReader(r, int64(at), headersMax), order, to) //nolint:gosec // a negative one is an error
}
