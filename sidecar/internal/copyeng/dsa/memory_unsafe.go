package dsa

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addressOf returns the address of mem. Neither mapped memory nor Go's heap moves; the channel
// holds mem as long as the device may use the address.
func addressOf(mem []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
}

// overlap reports whether a and b have a byte in common.
func overlap(a, b []byte) bool {
	x, y := addressOf(a), addressOf(b)
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// populate makes the pages of a range resident, as by a read or write of each, and changes no
// byte (MADV_POPULATE_READ, MADV_POPULATE_WRITE; Linux 5.14).
func populate(start, length uintptr, write bool) error {
	advice := uintptr(unix.MADV_POPULATE_READ)
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	if _, _, e := unix.Syscall(unix.SYS_MADVISE, start, length, advice); e != 0 {
		return e
	}
	return nil
}

// records are the completion records. The device writes them, so their memory neither moves nor
// is given back before the device file is closed.
type records struct {
	mem    []byte
	mapped bool
}

// mapRecords maps memory for n records, which is resident and, if the limit of locked memory
// allows it, stays so: a fault of a completion record cannot be resumed.
func mapRecords(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n*recordStride, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d completion records: %w", n, err)
	}
	_ = unix.Mlock(mem) // it is resident anyway unless memory is short
	return mem, nil
}

// unmap gives the memory of mapRecords back.
func (r records) unmap() error {
	if !r.mapped {
		return nil
	}
	return unix.Munmap(r.mem)
}

func (r records) address(i int) uint64 {
	return uint64(addressOf(r.mem[i*recordStride : (i+1)*recordStride]))
}

// word is the first word of a record: status, result, and 16 reserved bits.
func (r records) word(i int) *uint32 {
	return (*uint32)(unsafe.Pointer(&r.mem[i*recordStride]))
}

// reset prepares a record. The write of the descriptor comes after it.
func (r records) reset(i int) {
	atomic.StoreUint32(r.word(i), 0)
}

// load returns the status of a record, 0 if it is not written yet, and its result. The load
// comes before those of the record's other fields and of the destination: the device writes the
// status last.
func (r records) load(i int) (status, result uint8) {
	w := atomic.LoadUint32(r.word(i))
	return uint8(w), uint8(w >> resultShift)
}

// completed returns the bytes that a fault has left copied.
func (r records) completed(i int) uint32 {
	return *(*uint32)(unsafe.Pointer(&r.mem[i*recordStride+4]))
}
