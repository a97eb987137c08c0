package segment

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrNoMemory reports that the machine or the container does not have enough memory for a segment.
var ErrNoMemory = errors.New("not enough memory")

// reserveStep bounds how much memory one call of fallocate allocates, so that a shortage is detected
// between the steps.
const reserveStep = 64 << 20

// Create creates a shared-memory file of size bytes, reserves its pages, seals its size, maps it, and
// returns descriptor and mapping. Because pages are reserved, a shortage is an error here and not a
// SIGBUS at the first access. Because the size is sealed, the other side cannot remove pages that are
// mapped here.
func Create(name string, size int) (fd int, mem []byte, err error) {
	return createSealed(name, size, size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
}

// CreateToSeal is Create of memory that Seal seals after the other side has mapped it, too. Its first
// bytes are reserved; other bytes must not be accessed before Allocate has reserved them.
func CreateToSeal(name string, size, reserved int) (fd int, mem []byte, err error) {
	return createSealed(name, size, reserved, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
}

// Seal seals memory of CreateToSeal: no new writable mapping is possible, pages cannot be removed, and
// no seal can be added. Existing mappings stay valid, and Allocate still works.
func Seal(fd int) error {
	const want = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	_, cause := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || have&want != want { // the other side may have added the same ones
		return fmt.Errorf("segment: shared memory has the seals %#x, want %#x: %w", have, want, errors.Join(cause, err))
	}
	return nil
}

// Allocate reserves size bytes from off on. If it returns an error, the first done bytes are still
// reserved.
func Allocate(fd int, off, size int64) (done int64, err error) { return reserve(fd, off, size) }

// CreateToRead is Create of memory that only the returned mapping can write. A descriptor that is open
// only for reading would not ensure that: a process that has it can open the file again for writing.
func CreateToRead(name string, size int) (fd int, mem []byte, err error) {
	return createSealed(name, size, size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
}

// createSealed creates a file of size bytes, of which the first ones are reserved.
func createSealed(name string, size, reserved, seals int) (fd int, mem []byte, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if errors.Is(err, unix.EMFILE) {
		err = fmt.Errorf("no descriptor left; raise the limit of open files (ulimit -n): %w", err)
	}
	if err != nil {
		return -1, nil, fmt.Errorf("segment: memfd_create %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd) // the error below matters more
			fd = -1
		}
	}()
	if err = unix.Ftruncate(fd, int64(size)); err != nil {
		return fd, nil, fmt.Errorf("segment: sizing %s to %d bytes: %w", name, size, err)
	}
	if _, err = reserve(fd, 0, int64(reserved)); err != nil {
		return fd, nil, fmt.Errorf("segment: reserving %d bytes for %s: %w", reserved, name, err)
	}
	mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fd, nil, fmt.Errorf("segment: mapping %s: %w", name, err)
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		err = errors.Join(fmt.Errorf("segment: sealing %s: %w", name, err), Unmap(mem))
		return fd, nil, err
	}
	return fd, mem, nil
}

func reserve(fd int, off, size int64) (done int64, err error) {
	for done < size {
		n := min(reserveStep, size-done)
		err := unix.Fallocate(fd, 0, off+done, n)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
			return done, fmt.Errorf("%w after %d bytes", ErrNoMemory, done)
		case err != nil:
			return done, fmt.Errorf("segment: reserving %d bytes: %w", size, err)
		}
		done += n
	}
	return done, nil
}

// Open maps a shared-memory file that the sidecar has passed. It returns an error if the size is not
// sealed: if such a file were truncated, an access to the mapping would raise SIGBUS.
func Open(fd, size int) ([]byte, error) {
	have, err := sealed(fd)
	if err != nil {
		return nil, err
	}
	if have != int64(size) {
		return nil, fmt.Errorf("segment: %d bytes, the sidecar announced %d", have, size)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("segment: mapping %d bytes: %w", size, err)
	}
	return mem, nil
}

// OpenToRead maps size bytes from off on of a shared-memory file for reading only. It returns an error
// if the size is not sealed, as Open does.
func OpenToRead(fd int, off, size uint64) ([]byte, error) {
	have, err := sealed(fd)
	if err != nil {
		return nil, err
	}
	if size == 0 || off > uint64(have) || size > uint64(have)-off {
		return nil, fmt.Errorf("segment: %d bytes from %d on, of %d", size, off, have)
	}
	mem, err := unix.Mmap(fd, int64(off), int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("segment: mapping %d bytes: %w", size, err)
	}
	return mem, nil
}

// PagesStay reports whether no process can free allocated pages of a shared-memory file. The
// file needs F_SEAL_FUTURE_WRITE and the seal that keeps seals as they are. PagesStay fails if
// the size is not sealed, as in Open, or if the file ends before off+size.
func PagesStay(fd int, off, size uint64) (bool, error) {
	have, err := sealed(fd)
	if err != nil {
		return false, err
	}
	if size == 0 || off > uint64(have) || size > uint64(have)-off {
		return false, fmt.Errorf("segment: %d bytes from %d on, of %d", size, off, have)
	}
	const stay = unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return false, fmt.Errorf("segment: reading seals: %w", err)
	}
	return seals&stay == stay, nil
}

// sealed returns the size of a shared-memory file whose size cannot change, or an error if it is not
// sealed.
func sealed(fd int) (int64, error) {
	const want = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("segment: reading seals: %w", err)
	}
	if seals&want != want {
		return 0, errors.New("segment: the shared memory's size is not sealed")
	}
	// Pages of hugetlbfs may be missing under a mapping, even if the size is sealed.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, fmt.Errorf("segment: kind: %w", err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return 0, fmt.Errorf("segment: shared memory of a file system of type %#x", fs.Type)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("segment: size: %w", err)
	}
	return st.Size, nil
}

// Unmap removes a mapping.
func Unmap(mem []byte) error { return unix.Munmap(mem) }
