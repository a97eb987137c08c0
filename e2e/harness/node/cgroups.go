package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where the hierarchies are mounted, in a node as on a machine.
const cgroupRoot = "/sys/fs/cgroup"

// controllers are the hierarchies of cgroup v1 that kubelet and runc use, and
// the named one that has no controller.
var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"}

// MakeCgroups makes the cgroup path in every hierarchy of the machine, so that
// the pods of several nodes, which share the machine's hierarchies, do not
// share one /kubepods.
func MakeCgroups(path string) error {
	if err := needV1(); err != nil {
		return err
	}
	for _, c := range controllers {
		if err := os.MkdirAll(filepath.Join(cgroupRoot, c, path), 0o755); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	// A new cpuset is empty, and an empty one accepts no process (cpusets(7)).
	at := filepath.Join(cgroupRoot, "cpuset")
	for _, step := range splitPath(path) {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := copyValue(filepath.Join(at, file), filepath.Join(at, step, file)); err != nil {
				return err
			}
		}
		at = filepath.Join(at, step)
	}
	return nil
}

func needV1() error {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "memory", "cgroup.procs")); err != nil {
		return fmt.Errorf("the test cluster needs the hierarchies of cgroup v1 under %s (boot with systemd.unified_cgroup_hierarchy=0): %w", cgroupRoot, err)
	}
	return nil
}

func splitPath(path string) []string {
	if path == "/" || path == "." || path == "" {
		return nil
	}
	dir, last := filepath.Split(filepath.Clean(path))
	return append(splitPath(filepath.Clean(dir)), last)
}

func copyValue(from, to string) error {
	value, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := os.WriteFile(to, value, 0o644); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// RemoveCgroups removes the cgroup path from every hierarchy. Processes that
// were just killed leave theirs a moment later, so it is patient.
func RemoveCgroups(path string, patience time.Duration) error {
	var wrong []error
	for _, c := range controllers {
		top := filepath.Join(cgroupRoot, c, path)
		var err error
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			if err = removeTree(top); err == nil || !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
				break
			}
		}
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// removeTree removes folders from the leaves up; the files in them are the
// kernel's and go with them.
func removeTree(top string) error {
	var folders []string
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
		} else if err != nil {
			return err
		}
		if d.IsDir() {
			folders = append(folders, name)
		}
		return nil
	})
	for i := len(folders) - 1; i >= 0 && err == nil; i-- {
		if err = unix.Rmdir(folders[i]); errors.Is(err, unix.ENOENT) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", top, err)
	}
	return nil
}

// mountCgroups mounts the hierarchies again on the node's own /sys.
func mountCgroups() error {
	if err := unix.Mount("cgroups", cgroupRoot, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", cgroupRoot, err)
	}
	for _, c := range controllers {
		at, options := filepath.Join(cgroupRoot, c), c
		if c == "systemd" {
			options = "none,name=systemd"
		}
		if err := os.Mkdir(at, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", at, err)
		}
		if err := unix.Mount("cgroup", at, "cgroup", 0, options); err != nil {
			return fmt.Errorf("mount %s: %w", at, err)
		}
	}
	return nil
}
