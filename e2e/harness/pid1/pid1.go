// Package pid1 runs a program in namespaces of its own, among them a process
// namespace: whatever the program starts, and whatever becomes of it, ends when
// the first process of the namespace ends, because the kernel kills the rest
// (pid_namespaces(7)). So nothing of a test cluster can be left running, and
// nothing that the cluster did not start can be hit.
package pid1

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Argument is the first argument of a program that Command started. Its main
// function must then call Main with the arguments after it.
const Argument = "pid1"

// Name is what the program is called in lists of processes.
const Name = "outrigger-cluster"

// Command returns this program, started again in new namespaces with args: processes,
// mounts, network, host name and System V objects.
func Command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{Argument}, args...)...)
	cmd.Args[0] = Name
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // Ctrl-C at the caller's terminal is not for the cluster
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	return cmd
}

// Main is the first process: it makes /proc that of its namespace, runs this
// program with args as its child, and collects the processes that lose their
// parent. It returns the child's exit code when the child ends, and the caller
// must then exit. Open files above standard error are handed on.
func Main(args []string) (int, error) {
	if os.Getpid() != 1 {
		return 0, errors.New("pid1: this is how the cluster starts itself in namespaces of its own, not a command to type")
	}
	// Mounts made from here on stay here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, fmt.Errorf("pid1: make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return 0, fmt.Errorf("pid1: mount /proc: %w", err)
	}
	// These would end the namespace; only SIGKILL is to. They are caught and not
	// ignored: what is ignored stays so in every program started from here, down
	// to the containers, which must hear SIGTERM.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGTERM)
	files, err := inherited()
	if err != nil {
		return 0, err
	}
	child, err := os.StartProcess("/proc/self/exe", append([]string{os.Args[0]}, args...), &os.ProcAttr{Files: files})
	if err != nil {
		return 0, fmt.Errorf("pid1: %w", err)
	}
	return collect(child.Pid)
}

// inherited returns standard input, output and error and what follows them without
// a gap: the files that the caller passed.
func inherited() ([]*os.File, error) {
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	for fd := 3; ; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if errors.Is(err, unix.EBADF) {
			return files, nil
		} else if err != nil {
			return nil, fmt.Errorf("pid1: file %d: %w", fd, err)
		}
		if flags&unix.FD_CLOEXEC != 0 { // the Go runtime's own
			return files, nil
		}
		files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("inherited %d", fd)))
	}
}

// collect waits for every process of the namespace until child has ended.
func collect(child int) (int, error) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("pid1: wait: %w", err)
		case pid == child && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == child && status.Exited():
			return status.ExitStatus(), nil
		}
	}
}
