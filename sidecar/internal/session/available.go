package session

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MemoryPool is a limit on memory: the machine's, or that of a control group.
type MemoryPool struct {
	Free  uint64
	Limit uint64 // limit of the control group; 0: the pool is the machine
	Where string
}

// MemoryPools returns the limits that apply to the memory of this process and of its
// children.
func MemoryPools() ([]MemoryPool, error) {
	all, err := machineMemory()
	if err != nil {
		return nil, err
	}
	var list []MemoryPool
	for _, p := range all {
		to := MemoryPool{Free: less(p.limit, p.used), Where: p.where}
		if p.group {
			to.Limit = p.limit
		}
		list = append(list, to)
	}
	return list, nil
}

// machineMemory returns the limits that apply to this process's memory.
func machineMemory() ([]pool, error) {
	return availableMemory("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup")
}

// availableMemory returns the machine's limit, and the limits of the control groups that
// the process is in.
func availableMemory(meminfo, self, cgroup string) ([]pool, error) {
	groups := limits(self, cgroup)
	free, err := readField(meminfo, "MemAvailable:")
	if err != nil {
		return nil, fmt.Errorf("session: reading available memory: %w", err)
	}
	free <<= 10
	if len(groups) == 0 {
		// No part of this memory is reserved for the job: other processes need some of it.
		free -= free / 10
	}
	return append(groups, pool{limit: free, where: "on the machine"}), nil
}

// noLimit is the smallest number that means no limit: version 1 of control groups has no
// other notation.
const noLimit = 1 << 60

// limits reads the control groups that limit the process. Within a container, the group is
// the root of the mounted hierarchy, whatever its name is outside of the container.
func limits(self, cgroup string) []pool {
	var found []pool
	raw, _ := os.ReadFile(self) // if it cannot be read, limits reads the root
	for _, v := range []struct{ controller, root, limit, used, cache string }{
		{"", cgroup, "memory.max", "memory.current", "file"},
		{"memory", filepath.Join(cgroup, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"},
	} {
		for dir := group(string(raw), v.controller); ; dir = path.Dir(dir) {
			at := filepath.Join(v.root, dir)
			limit, ok1 := readNumber(filepath.Join(at, v.limit))
			used, ok2 := readNumber(filepath.Join(at, v.used))
			if ok1 && ok2 && limit < noLimit {
				found = append(found, pool{limit: limit, used: less(used, cached(at, v.cache)), group: true, where: "within the container's limit"})
			}
			if dir == "/" {
				break
			}
		}
	}
	return found
}

// group returns the control group of the process: in the hierarchy of a version 1
// controller, or, if controller is empty, in version 2.
func group(self, controller string) string {
	for line := range strings.Lines(self) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) == 3 && slices.Contains(strings.Split(part[1], ","), controller) {
			return path.Join("/", part[2])
		}
	}
	return "/"
}

// cached returns the size of a group's file cache, which the kernel reclaims when memory is
// needed: all but shared memory, which counts as cache, too.
func cached(dir, field string) uint64 {
	stat := filepath.Join(dir, "memory.stat")
	all, err := readField(stat, field)
	if err != nil {
		return 0
	}
	shared := "shmem"
	if strings.HasPrefix(field, "total_") {
		shared = "total_shmem"
	}
	n, err := readField(stat, shared)
	if err != nil {
		return 0
	}
	return less(all, n)
}

// readField reads the number that follows name in a file with one such pair in each line.
func readField(file, name string) (uint64, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			return strconv.ParseUint(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// readNumber reads a number from a control-group file. It reports false for "max" and for
// absent files.
func readNumber(path string) (uint64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	return n, err == nil
}
