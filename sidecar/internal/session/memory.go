package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// reservations keeps attaches that run at the same time from promising the same
// memory twice. fallocate alone would not: on the kernel's shared-memory mount
// it goes on until the out-of-memory killer ends somebody.
type reservations struct {
	available func() (free uint64, where string, err error)
	mu        sync.Mutex
	settled   sync.Cond
	promised  uint64 // bytes that are being reserved, and may be counted as available still
}

func newReservations(available func() (uint64, string, error)) *reservations {
	r := &reservations{available: available}
	r.settled.L = &r.mu
	return r
}

// promise waits for its turn, and refuses what the machine or the container
// has not room for. The caller calls settle when the memory is reserved, or
// will not be.
func (r *reservations) promise(want uint64) (settle func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		free, where, err := r.available()
		if err != nil {
			return nil, err
		}
		room := free - free/10
		if want <= room && r.promised <= room-want {
			r.promised += want
			return func() { r.settle(want) }, nil
		}
		if r.promised == 0 {
			return nil, fmt.Errorf("%w: %d bytes wanted, %d bytes available %s", segment.ErrNoMemory, want, free, where)
		}
		r.settled.Wait() // then it is known what the others really left
	}
}

func (r *reservations) settle(n uint64) {
	r.mu.Lock()
	r.promised -= n
	r.settled.Broadcast()
	r.mu.Unlock()
}

func machineMemory() (uint64, string, error) {
	return availableMemory("/proc/meminfo", "/sys/fs/cgroup")
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
		if ok1 && ok2 && limit-min(used, limit) < free {
			free, where = limit-min(used, limit), "within the container's limit"
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
