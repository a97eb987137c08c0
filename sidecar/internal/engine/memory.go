package engine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reserveMemory takes address space whose pages cost nothing until touched.
func reserveMemory(n uint64) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("engine: reserving %d MiB of address space for unexpected messages: %w", n>>20, err)
	}
	return mem, nil
}

func releaseMemory(mem []byte) error { return unix.Munmap(mem) }
