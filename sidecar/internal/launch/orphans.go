package launch

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A rank's process group ends with the rank. A process that has left the group, as daemons
// do, becomes a child of this process when its parent ends (Adopt), and is ended here.

// Adopt makes orphaned descendants children of this process. On kernels before 3.4, which
// cannot do that, they become children of init.
func Adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// reapOrphans waits for adopted processes that have ended, so that a long-running pod does
// not collect zombies.
func (p *pod) reapOrphans() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		// WNOWAIT first: a rank is waited for by its own goroutine. The children after it in the
		// kernel's order are found by a later call.
		var ended siginfo
		err := unix.Waitid(unix.P_ALL, 0, ended.info(), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != nil || ended.pid() == 0 || p.isRank(ended.pid()) {
			return
		}
		_, _ = unix.Wait4(ended.pid(), nil, unix.WNOHANG, nil) // it has ended
	}
}

func (p *pod) isRank(pid int) bool {
	for _, proc := range p.procs {
		if proc.Pid == pid {
			return true
		}
	}
	return false
}

// KillOrphans kills every child of this process except own, and repeats that for the children that
// these leave behind. Precondition: all ranks have ended.
func KillOrphans(own ...int) {
	for {
		list := slices.DeleteFunc(children(), func(pid int) bool { return slices.Contains(own, pid) })
		if len(list) == 0 {
			return
		}
		for _, pid := range list {
			_ = unix.Kill(pid, unix.SIGKILL)    // it may just have ended
			_, _ = unix.Wait4(pid, nil, 0, nil) // its status does not matter
		}
	}
}

// children lists the child processes of this process. If /proc belongs to another PID
// namespace, its numbers mean other processes; isChild filters those out.
func children() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // without /proc they are not known
	}
	var list []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parentOf(pid) == os.Getpid() && isChild(pid) {
			list = append(list, pid)
		}
	}
	return list
}

// isChild asks the kernel without blocking and without reaping the process.
func isChild(pid int) bool {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil
}

// parentOf returns the fourth field of /proc/PID/stat, which follows the name in brackets
// and the state. It returns 0 if the process has ended.
func parentOf(pid int) int {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1])) // the kernel's number
	return parent
}
