package mpi

import (
	"fmt"
	"os"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// allocFile places a program's large allocations in the arena of its rank.
const allocFile = "liboutrigger-alloc.so"

// largeDefault is what is large where a job does not say. Smaller messages gain
// little, and each allocation takes whole pages.
const largeDefault = 64 << 10

// smallestPlaced is the least that a job may ask to be placed: a page, which is what
// each allocation takes of the arena at least.
const smallestPlaced = 4 << 10

// placement is what a program needs whose large allocations shall lie in the arena, as
// names.EnvMPIArena says. The library gets the size in bytes.
func placement(dir string) (wish, error) {
	large := int64(largeDefault)
	switch wanted := os.Getenv(names.EnvMPIArena); wanted {
	case "", "off":
		return wish{}, nil
	case "on":
	default:
		var err error
		if large, err = memory.Parse(wanted, 1); err != nil || large < smallestPlaced {
			return wish{}, fmt.Errorf("%s=%s: want on, off, or the smallest allocation to place, such as 64KiB; at least %s", names.EnvMPIArena, wanted, memory.Text(smallestPlaced))
		}
	}
	return preloaded(dir, allocFile, names.EnvMPIArena, fmt.Sprintf("%s=%d", names.EnvMPIArena, large))
}
