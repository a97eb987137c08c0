package wake

import (
	"math/bits"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Processors returns how many CPUs this process can keep busy: those on which it may run by its
// affinity and its cpuset, but no more than the CPU time that its control groups allow. It is 0 if
// they allow less than one CPU, or if the kernel does not report it.
func Processors() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
		return 0
	}
	n := 0
	for _, word := range set {
		n += bits.OnesCount64(uint64(word))
	}
	return min(n, quota("/proc/self/cgroup", "/sys/fs/cgroup", n))
}

// quota returns the smallest number of whole CPUs that the control groups named in the file self, and
// those above them, allow; at most most.
func quota(self, mount string, most int) int {
	text, err := os.ReadFile(self)
	if err != nil {
		return most // no control groups
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[1] == "": // version 2
			most = min(most, climb(mount, parts[2], most, second))
		case strings.Contains(","+parts[1]+",", ",cpu,"):
			most = min(most, climb(filepath.Join(mount, parts[1]), parts[2], most, first))
		}
	}
	return most
}

// climb reads the limits of a group and of those above it, up to the mount. In a container the names
// may be those of the host; a group that does not exist here is no limit.
func climb(mount, group string, most int, grant func(dir string) (int, bool)) int {
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		if n, ok := grant(filepath.Join(mount, dir)); ok {
			most = min(most, n)
		}
		if dir == "/" {
			return most
		}
	}
}

// second reads cpu.max: "QUOTA PERIOD", or "max PERIOD".
func second(dir string) (int, bool) {
	text, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if err != nil {
		return 0, false
	}
	words := strings.Fields(string(text))
	if len(words) != 2 {
		return 0, false
	}
	return whole(words[0], words[1])
}

// first reads the two files of version 1; a quota of -1 is none.
func first(dir string) (int, bool) {
	quota, err1 := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
	period, err2 := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
	if err1 != nil || err2 != nil {
		return 0, false
	}
	return whole(strings.TrimSpace(string(quota)), strings.TrimSpace(string(period)))
}

func whole(quota, period string) (int, bool) {
	q, err1 := strconv.ParseInt(quota, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err1 != nil || err2 != nil || q < 0 || p <= 0 {
		return 0, false // none
	}
	return int(q / p), true
}
