package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// isStopped reports whether a process is alive and does not run, because a signal or a
// debugger has stopped it or its control group is frozen. A process in another PID namespace
// counts as running.
func isStopped(root string, pid int) (stopped, frozen bool) {
	if pid <= 0 {
		return false, false
	}
	b, err := os.ReadFile(filepath.Join(root, fmt.Sprintf("proc/%d/stat", pid)))
	if err != nil {
		return false, false // the process has ended
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the fields after the name, which is in parentheses
	if len(fields) == 0 {
		return false, false
	}
	switch fields[0][0] {
	case 'T', 't': // T: stopped by a signal; t: stopped by a debugger (proc_pid_stat(5))
		return true, false
	case 'R': // no frozen process is in this state
		return false, false
	}
	frozen = isFrozen(root, pid)
	return frozen, frozen
}

// isFrozen reports whether a process is in a frozen control group, of version 2
// (cgroup.freeze) or of version 1 (its freezer controller). If a group above it was frozen,
// the process's own group has that state, too, in both versions. If the group is not mounted
// here, as the groups of another container, the process counts as running.
func isFrozen(root string, pid int) bool {
	groups, err := os.ReadFile(filepath.Join(root, fmt.Sprintf("proc/%d/cgroup", pid)))
	if err != nil {
		return false // the process has ended
	}
	for line := range strings.Lines(string(groups)) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // number, controllers, path
		if len(part) != 3 {
			continue
		}
		file, line, controller := "freezer.state", "FROZEN", "freezer"
		switch {
		case part[1] == "": // version 2
			file, line, controller = "cgroup.events", "frozen 1", ""
		case !slices.Contains(strings.Split(part[1], ","), controller):
			continue
		}
		dir := groupDir(root, controller, part[2])
		if dir == "" {
			continue
		}
		state, err := os.ReadFile(filepath.Join(dir, file)) // the root group has no such file and is never frozen
		if err == nil && slices.Contains(strings.Split(string(state), "\n"), line) {
			return true
		}
	}
	return false
}

// groupDir returns the directory of a control group in the hierarchy of a controller of
// version 1, or, if controller is "", in that of version 2. It returns "" if no mount has the
// group.
func groupDir(root, controller, group string) string {
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(mounts)) {
		// 34 31 0:29 ROOT POINT OPTIONS FIELDS... - TYPE SOURCE SUPER (proc_pid_mountinfo(5))
		mount, system, ok := strings.Cut(line, " - ")
		m, s := strings.Fields(mount), strings.Fields(system)
		switch {
		case !ok, len(m) < 5, len(s) < 3:
			continue
		case controller == "" && s[0] != "cgroup2":
			continue
		case controller != "" && (s[0] != "cgroup" || !slices.Contains(strings.Split(s[2], ","), controller)):
			continue
		}
		// The path of a group outside of the reader's cgroup namespace begins with /..: no
		// mount has it.
		below, err := filepath.Rel(unescaped(m[3]), group)
		if err == nil && !strings.HasPrefix(below, "..") && !strings.Contains(group, "/..") {
			return filepath.Join(root, unescaped(m[4]), below)
		}
	}
	return ""
}

// unescaped decodes a path of mountinfo, in which blanks and backslashes are octal.
func unescaped(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}
