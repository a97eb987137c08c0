package rdmavm

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// archive writes an initramfs in the cpio format "newc"
// (Documentation/driver-api/early-userspace/buffer-format.rst in Linux).
type archive struct {
	w     *bufio.Writer
	n     int // number of bytes written
	inode int
	dirs  map[string]bool
	err   error
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), dirs: map[string]bool{".": true}}
}

// Type bits of a mode, as in stat(2).
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

func (a *archive) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
		a.n += len(b)
	}
}

func (a *archive) pad() { a.write(make([]byte, (4-a.n%4)%4)) }

func (a *archive) entry(name string, mode int, content []byte) {
	a.inode++
	a.write(fmt.Appendf(nil, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0))
	a.write(append([]byte(name), 0))
	a.pad()
	a.write(content)
	a.pad()
}

// dir adds a directory entry for a folder, and for each folder above it.
func (a *archive) dir(name string) {
	if name = path.Clean(name); a.dirs[name] {
		return
	}
	a.dir(path.Dir(name))
	a.dirs[name] = true
	a.entry(name, modeDir|0o755, nil)
}

// file copies a file of this machine; symbolic links are followed.
func (a *archive) file(name, from string) {
	content, err := os.ReadFile(from)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.bytes(name, 0o755, content)
}

func (a *archive) bytes(name string, mode fs.FileMode, content []byte) {
	a.dir(path.Dir(name))
	a.entry(name, modeFile|int(mode.Perm()), content)
}

func (a *archive) link(name, target string) {
	a.dir(path.Dir(name))
	a.entry(name, modeLink|0o777, []byte(target))
}

func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil)
	if a.err != nil {
		return fmt.Errorf("initramfs: %w", a.err)
	}
	return a.w.Flush()
}

// replace writes a file atomically: after an error, the old file is unchanged.
func replace(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after a success, the file has another name and this fails
	err = write(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	return err
}
