package launch

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A rank's process group ends with the rank. What has left the group, as
// daemons do, becomes this process's child when its parent ends, because of
// Adopt, and is found here.

// Adopt makes orphaned descendants children of this process. A kernel that
// cannot (before 3.4) leaves them to init.
func Adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// reapOrphans takes away adopted processes that have ended, for pods that run
// for long.
func (p *pod) reapOrphans() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		// Looked at first: a rank is for its own goroutine, and what comes
		// after it has time.
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

// KillOrphans ends every child of this process, and what they leave behind in
// turn, but for own, which it has started. All ranks have ended.
func KillOrphans(own ...int) {
	for {
		list := slices.DeleteFunc(children(), func(pid int) bool { return slices.Contains(own, pid) })
		if len(list) == 0 {
			return
		}
		for _, pid := range list {
			_ = unix.Kill(pid, unix.SIGKILL)    // it may just have ended
			_, _ = unix.Wait4(pid, nil, 0, nil) // whatever it was
		}
	}
}

// children lists the processes whose parent this is. The /proc of another PID
// namespace has other processes under the same numbers: what is no child by the
// kernel's word is none.
func children() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // without /proc nobody can tell
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

// isChild asks without waiting and without taking anything away.
func isChild(pid int) bool {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil
}

// parentOf reads the fourth field of /proc/PID/stat, which follows the name in
// brackets and the state; 0: the process has ended.
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
