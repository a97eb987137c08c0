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

// Place is somewhere memory is counted: the machine, or a control group with a limit.
type Place struct {
	Free  uint64
	Limit uint64 // of the group; 0: it is the machine
	Where string
}

// Places are where the memory of this process, and of those that it starts, is counted.
func Places() ([]Place, error) {
	all, err := machineMemory()
	if err != nil {
		return nil, err
	}
	var list []Place
	for _, p := range all {
		to := Place{Free: less(p.limit, p.used), Where: p.where}
		if p.group {
			to.Limit = p.limit
		}
		list = append(list, to)
	}
	return list, nil
}

// machineMemory is where this process's memory is counted.
func machineMemory() ([]place, error) {
	return availableMemory("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup")
}

// availableMemory is the machine, and the control groups with a limit that the
// process is in.
func availableMemory(meminfo, self, cgroup string) ([]place, error) {
	groups := limits(self, cgroup)
	free, err := readField(meminfo, "MemAvailable:")
	if err != nil {
		return nil, fmt.Errorf("session: reading available memory: %w", err)
	}
	free <<= 10
	if len(groups) == 0 {
		// Nobody has set this memory aside for the job: some is left to others.
		free -= free / 10
	}
	return append(groups, place{limit: free, where: "on the machine"}), nil
}

// noLimit is the least limit that stands for none: version 1 has no word for it.
const noLimit = 1 << 60

// limits reads the control groups that limit the process. Within a container
// the group is the root of what is mounted, whatever its name is outside.
func limits(self, cgroup string) []place {
	var found []place
	raw, _ := os.ReadFile(self) // without it the root is looked at
	for _, v := range []struct{ controller, root, limit, used, cache string }{
		{"", cgroup, "memory.max", "memory.current", "file"},
		{"memory", filepath.Join(cgroup, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"},
	} {
		for dir := group(string(raw), v.controller); ; dir = path.Dir(dir) {
			at := filepath.Join(v.root, dir)
			limit, ok1 := readNumber(filepath.Join(at, v.limit))
			used, ok2 := readNumber(filepath.Join(at, v.used))
			if ok1 && ok2 && limit < noLimit {
				found = append(found, place{limit: limit, used: less(used, cached(at, v.cache)), group: true, where: "within the container's limit"})
			}
			if dir == "/" {
				break
			}
		}
	}
	return found
}

// group is the process's control group: that of a controller of version 1, or,
// without a name, that of version 2.
func group(self, controller string) string {
	for line := range strings.Lines(self) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) == 3 && slices.Contains(strings.Split(part[1], ","), controller) {
			return path.Join("/", part[2])
		}
	}
	return "/"
}

// cached is the file cache of a group that the kernel takes back when memory is
// needed: all but shared memory, which counts as cache too.
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

// readField reads a number after its name, in a file of such lines.
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

// readNumber reads a control-group file; "max" and absent files are no number.
func readNumber(path string) (uint64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	return n, err == nil
}
