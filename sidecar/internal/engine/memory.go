package engine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reserveMemory reserves address space whose pages cost nothing until they are touched.
func reserveMemory(n uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("engine: reserving %d MiB of address space: %w", n>>20, err)
	}
	// A huge page would back addresses that were never used, or were given back. A kernel without
	// huge pages refuses that.
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	return mem, nil
}

// discardMemory gives whole pages back to the kernel. They read as zeros afterwards.
func discardMemory(mem []byte) {
	_ = unix.Madvise(mem, unix.MADV_DONTNEED) // otherwise they stay in memory
}

func releaseMemory(mem []byte) error {
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}
