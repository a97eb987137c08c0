package dsamodel

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory returns bytes of this process by their address. The submitter keeps them alive until the
// descriptor has ended.
func memory(address uint64, n uint32) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}

// word returns the first word of a completion record.
func word(record uint64) *uint32 {
	return *(**uint32)(unsafe.Pointer(&record))
}

// check notes what no driver may submit.
func (d *Device) check(b []byte, x *Descriptor) {
	for i, v := range b {
		if v != 0 && (i < 4 || i >= 36) {
			d.mistake("byte %d of a descriptor is %#x, which is not a field of a copy", i, v)
		}
	}
	if x.Completion%recordAlign != 0 || x.Completion == 0 {
		d.mistake("completion address %#x", x.Completion)
		return
	}
	if atomic.LoadUint32(word(x.Completion)) != 0 {
		d.mistake("a completion record that was not reset")
	}
	for i := range d.queue {
		j := &d.queue[i]
		if j.Completion == x.Completion {
			d.mistake("two descriptors in flight have one completion record")
		}
		if meet(x.Destination, x.Size, j.Destination, j.Size) || meet(x.Destination, x.Size, j.Source, j.Size) ||
			meet(x.Source, x.Size, j.Destination, j.Size) {
			d.mistake("two descriptors in flight of which the order matters")
		}
	}
	if meet(x.Destination, x.Size, x.Source, x.Size) {
		d.mistake("source and destination overlap")
	}
}

// meet reports whether two ranges have a byte in common.
func meet(a uint64, an uint32, b uint64, bn uint32) bool {
	return a < b+uint64(bn) && b < a+uint64(an)
}

// execute carries a descriptor out, with its fault.
func (d *Device) execute(j *job) {
	status, n, f := d.status(j), j.Size, j.fault
	if f.Break {
		d.broken = true
		copy(memory(j.Destination, f.After), memory(j.Source, f.After))
		return
	}
	if status == success && d.options.Pages && f.Status == 0 {
		f = fault(&j.Descriptor)
	}
	if f.Status != 0 {
		status, n = f.Status, min(f.After, j.Size)
	} else if status != success {
		n = 0
	}
	from := uint64(0)
	if f.Backward {
		from = uint64(j.Size - n)
	}
	copy(memory(j.Destination+from, n), memory(j.Source+from, n))
	if f.Lost || status == badRecord {
		return // there is no place for a record
	}
	if f.Claim != 0 {
		n = f.Claim
	}
	complete(j.Completion, status, n, f.Backward)
}

// complete writes a completion record, the status last.
func complete(record uint64, status uint8, n uint32, backward bool) {
	*(*uint32)(unsafe.Add(unsafe.Pointer(word(record)), 4)) = n
	result := uint32(0)
	if backward {
		result = 1 << 8
	}
	atomic.StoreUint32(word(record), result|uint32(status))
}

// fault returns the fault of the first page of a descriptor that is not resident.
func fault(x *Descriptor) Fault {
	src := absent(x.Source, x.Size)
	dst := absent(x.Destination, x.Size)
	switch {
	case src == x.Size && dst == x.Size:
		return Fault{}
	case dst < src:
		return Fault{Status: pageFault | faultOfWrite, After: dst}
	}
	return Fault{Status: pageFault, After: src}
}

// absent returns the bytes of a range before the first page that is not resident.
func absent(address uint64, n uint32) uint32 {
	page := uint64(unix.Getpagesize())
	for at := address &^ (page - 1); at < address+uint64(n); at += page {
		var resident [1]byte
		_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(at), uintptr(page), uintptr(unsafe.Pointer(&resident[0])))
		if e != 0 || resident[0]&1 == 0 {
			return uint32(max(at, address) - address)
		}
	}
	return n
}
