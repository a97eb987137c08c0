package mpi

import (
	"fmt"
	"os"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// allocFile is the library that places a program's large allocations in the arena of its
// rank.
const allocFile = "liboutrigger-alloc.so"

// largeDefault is the size from which on allocations are placed in the arena by default.
// Smaller messages gain little, and each allocation takes whole pages.
const largeDefault = 64 << 10

// smallestPlaced is the smallest size that a job may request to be placed: a page, which
// each allocation takes of the arena at least.
const smallestPlaced = 4 << 10

// placement returns the setting of a program whose large allocations are placed in the
// arena, by names.EnvMPIArena. The library gets the size in bytes.
func placement(dir string) (setting, error) {
	large := int64(largeDefault)
	switch wanted := os.Getenv(names.EnvMPIArena); wanted {
	case "", "off":
		return setting{}, nil
	case "on":
	default:
		var err error
		if large, err = memory.Parse(wanted, 1); err != nil || large < smallestPlaced {
			return setting{}, fmt.Errorf("%s=%s: want on, off, or the smallest allocation to place, such as 64KiB; at least %s", names.EnvMPIArena, wanted, memory.Text(smallestPlaced))
		}
	}
	return preloaded(dir, allocFile, names.EnvMPIArena, fmt.Sprintf("%s=%d", names.EnvMPIArena, large))
}
