package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Mounts of the control groups: version 2, version 1, both as in systemd's hybrid layout, and
// those in a container without a cgroup namespace.
const (
	mountV2        = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1        = "36 24 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n37 24 0:32 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
	mountHybrid    = mountV1 + "38 24 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	mountContainer = "39 24 0:34 /docker/4\\0405 /sys/fs/cgroup/freezer ro - cgroup cgroup rw,freezer\n"
)

// TestFrozen: a process in a frozen control group is stopped, in both versions of control
// groups. A process whose group is not mounted counts as running.
func TestFrozen(t *testing.T) {
	const asleep, running = "7 (a) R) S 1 7", "7 (a) S) R 1 7"
	const v2, v1 = "0::/kube/pod\n", "5:memory:/\n4:cpuacct,freezer:/kube/pod\n"
	for name, c := range map[string]struct {
		stat, groups, mounts string
		files                map[string]string
		stopped, frozen      bool
	}{
		"by a signal":           {stat: "7 (a) S) T 1 7", stopped: true},
		"by a debugger":         {stat: "7 (a) S) t 1 7", stopped: true},
		"none":                  {stat: asleep},
		"version 2":             {asleep, v2, mountV2, map[string]string{"kube/pod/cgroup.events": "populated 1\nfrozen 1\n"}, true, true},
		"version 2, thawed":     {asleep, v2, mountV2, map[string]string{"kube/pod/cgroup.events": "populated 1\nfrozen 0\n"}, false, false},
		"version 2, runs":       {running, v2, mountV2, map[string]string{"kube/pod/cgroup.events": "populated 1\nfrozen 1\n"}, false, false},
		"version 2, of another": {asleep, v2, mountV2, map[string]string{"kube/pod/cgroup.events": "frozen 0\n", "kube/other/cgroup.events": "frozen 1\n"}, false, false},
		"version 2, the top":    {asleep, "0::/\n", mountV2, nil, false, false},
		"version 1":             {asleep, v1, mountV1, map[string]string{"freezer/kube/pod/freezer.state": "FROZEN\n"}, true, true},
		"version 1, thawed":     {asleep, v1, mountV1, map[string]string{"freezer/kube/pod/freezer.state": "THAWED\n", "memory/freezer.state": "FROZEN\n"}, false, false},
		"version 1, on its way": {asleep, v1, mountV1, map[string]string{"freezer/kube/pod/freezer.state": "FREEZING\n"}, false, false},
		"hybrid, by version 1":  {asleep, v1 + "0::/init\n", mountHybrid, map[string]string{"freezer/kube/pod/freezer.state": "FROZEN\n", "unified/init/cgroup.events": "frozen 0\n"}, true, true},
		"hybrid, by version 2":  {asleep, v1 + "0::/init\n", mountHybrid, map[string]string{"freezer/kube/pod/freezer.state": "THAWED\n", "unified/init/cgroup.events": "frozen 1\n"}, true, true},
		"a part is mounted":     {asleep, "4:freezer:/docker/4 5/sub\n", mountContainer, map[string]string{"freezer/sub/freezer.state": "FROZEN\n"}, true, true},
		"not in that part":      {asleep, "4:freezer:/docker/6\n", mountContainer, map[string]string{"freezer/freezer.state": "FROZEN\n"}, false, false},
		"another namespace":     {asleep, "0::/../pod\n", mountV2, map[string]string{"pod/cgroup.events": "frozen 1\n", "../cgroup/pod/cgroup.events": "frozen 1\n"}, false, false},
		"not mounted":           {asleep, v1 + v2, "", map[string]string{"kube/pod/cgroup.events": "frozen 1\n"}, false, false},
		"no such file":          {asleep, v1 + v2, mountV2 + mountV1, nil, false, false},
		"no lines":              {asleep, "freezer\n\n", mountV2 + " - \n - cgroup2\n", nil, false, false},
	} {
		root := t.TempDir()
		write := func(path, text string) {
			t.Helper()
			path = filepath.Join(root, path)
			err := os.MkdirAll(filepath.Dir(path), 0o700)
			if err == nil {
				err = os.WriteFile(path, []byte(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write("proc/7/stat", c.stat+" 7 0 -1\n")
		write("proc/7/cgroup", c.groups)
		write("proc/self/mountinfo", c.mounts)
		for path, text := range c.files {
			write(filepath.Join("sys/fs/cgroup", path), text)
		}
		if stopped, frozen := isStopped(root, 7); stopped != c.stopped || frozen != c.frozen {
			t.Errorf("%s: stopped %v, frozen %v", name, stopped, frozen)
		}
		if stopped, frozen := isStopped(root, 8); stopped || frozen {
			t.Errorf("%s: a process that has ended is stopped", name)
		}
	}
}

// TestStoppedByADebugger: a process that a debugger has stopped is stopped until the debugger
// detaches.
func TestStoppedByADebugger(t *testing.T) {
	runtime.LockOSThread() // ptrace binds the debugger to a thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true} // stopped at its first instruction
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	for {
		stopped, frozen := isStopped("/", pid)
		if frozen {
			t.Error("a process in a debugger is frozen")
		}
		if stopped {
			break
		}
		time.Sleep(time.Millisecond)
	}
	var status syscall.WaitStatus
	if _, err = syscall.Wait4(pid, &status, 0, nil); err == nil {
		err = syscall.PtraceDetach(pid)
	}
	if err != nil || !status.Stopped() {
		t.Fatalf("%v; status %#x", err, status)
	}
	for stopped := true; stopped; stopped, _ = isStopped("/", pid) {
		time.Sleep(time.Millisecond)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
