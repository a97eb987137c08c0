package mpi

import (
	"fmt"
	"os"
	"path/filepath"

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

// placement is the environment of a program whose large allocations shall lie in the
// arena, as names.EnvMPIArena says; nil: they shall not. The library gets the size in
// bytes.
func placement(dir string) ([]string, error) {
	large := int64(largeDefault)
	switch wanted := os.Getenv(names.EnvMPIArena); wanted {
	case "", "off":
		return nil, nil
	case "on":
	default:
		var err error
		if large, err = memory.Parse(wanted, 1); err != nil || large < smallestPlaced {
			return nil, fmt.Errorf("%s=%s: want on, off, or the smallest allocation to place, such as 64KiB; at least %s", names.EnvMPIArena, wanted, memory.Text(smallestPlaced))
		}
	}
	path := filepath.Join(dir, allocFile)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s is set, and %s is not beside the provider: %w", names.EnvMPIArena, allocFile, err)
	}
	if more := os.Getenv("LD_PRELOAD"); more != "" {
		path += ":" + more
	}
	return []string{"LD_PRELOAD=" + path, fmt.Sprintf("%s=%d", names.EnvMPIArena, large)}, nil
}
