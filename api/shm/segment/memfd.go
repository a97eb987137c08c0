package segment

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrNoMemory reports that the machine or the container has not the memory
// that a segment asks for.
var ErrNoMemory = errors.New("not enough memory")

// reserveStep bounds how much memory one fallocate call takes, so that a
// shortage is seen between the steps.
const reserveStep = 64 << 20

// Create makes a shared-memory file of size bytes, reserves its pages, seals
// its size, maps it, and returns descriptor and mapping. Reserving first turns
// a shortage into an error here instead of a SIGBUS at first touch; sealing
// keeps the other side from taking pages away under our feet (DESIGN §4).
func Create(name string, size int) (fd int, mem []byte, err error) {
	return createSealed(name, size, size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
}

// CreateToSeal is Create of memory that Seal seals when the other side has mapped it too. The
// first bytes of it are reserved; no other may be touched before Allocate has reserved it.
func CreateToSeal(name string, size, reserved int) (fd int, mem []byte, err error) {
	return createSealed(name, size, reserved, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
}

// Seal seals memory of CreateToSeal: it can be mapped to be written no more, pages cannot be
// taken away, and no seal can be added. Those who have mapped it go on, and Allocate does.
func Seal(fd int) error {
	const want = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	_, cause := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || have&want != want { // the other side may have added the same ones
		return fmt.Errorf("segment: shared memory has the seals %#x, want %#x: %w", have, want, errors.Join(cause, err))
	}
	return nil
}

// Allocate reserves size bytes from off on. On an error the first done of them are
// reserved all the same.
func Allocate(fd int, off, size int64) (done int64, err error) { return reserve(fd, off, size) }

// CreateToRead is Create of memory that only the returned mapping can write. A descriptor
// that is open for reading alone would not see to that: whoever has it can open the file
// again.
func CreateToRead(name string, size int) (fd int, mem []byte, err error) {
	return createSealed(name, size, size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
}

// createSealed makes a file of size bytes, of which the first ones are reserved.
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

// Open maps a shared-memory file that the sidecar passed. It refuses one whose
// size is not sealed: such a file could be cut under the mapping.
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

// OpenToRead maps size bytes from off on of a shared-memory file, to be read only. It
// refuses one whose size is not sealed, as Open does.
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

// sealed is the size of a shared-memory file, which nobody can change.
func sealed(fd int) (int64, error) {
	const want = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("segment: reading seals: %w", err)
	}
	if seals&want != want {
		return 0, errors.New("segment: the shared memory's size is not sealed")
	}
	// Pages of hugetlbfs can be missing under a mapping, whatever is sealed.
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

// Unmap gives a mapping back.
func Unmap(mem []byte) error { return unix.Munmap(mem) }
