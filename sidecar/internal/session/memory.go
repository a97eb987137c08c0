package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// checkMemory refuses a reservation that the machine or the container has not
// room for. fallocate alone would not: on the kernel's shared-memory mount it
// goes on until the out-of-memory killer ends somebody.
func checkMemory(want uint64) error {
	free, where, err := availableMemory("/proc/meminfo", "/sys/fs/cgroup")
	if err != nil {
		return err
	}
	if want > free-free/10 {
		return fmt.Errorf("%w: %d MiB wanted, %d MiB available %s", segment.ErrNoMemory, want>>20, free>>20, where)
	}
	return nil
}

// availableMemory is the smaller of what the machine and the control group
// have left, in bytes, and which of the two it is.
func availableMemory(meminfo, cgroup string) (free uint64, where string, err error) {
	raw, err := os.ReadFile(meminfo)
	if err != nil {
		return 0, "", fmt.Errorf("session: reading available memory: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0, "", fmt.Errorf("session: MemAvailable: %w", err)
			}
			free, where = kib<<10, "on the machine"
		}
	}
	for _, f := range [][2]string{{"memory.max", "memory.current"}, {"memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"}} {
		limit, ok1 := readNumber(filepath.Join(cgroup, f[0]))
		used, ok2 := readNumber(filepath.Join(cgroup, f[1]))
		if ok1 && ok2 && limit > used && limit-used < free {
			free, where = limit-used, "within the container's limit"
		}
	}
	return free, where, nil
}

// readNumber reads a control-group file; "max" and absent files are no number.
func readNumber(path string) (uint64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	return n, err == nil
}
