package harness

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/harness/control"
	"github.com/outrigger-hpc/outrigger/e2e/harness/keeper"
	"github.com/outrigger-hpc/outrigger/e2e/harness/pid1"
)

// Down ends the cluster, also one that is partly up, and removes its files. It is no error if
// no cluster runs.
func Down() error {
	if err := CheckMachine(); err != nil {
		return err
	}
	p, err := here()
	if err != nil {
		return err
	}
	if err := p.halt(); err != nil {
		return err
	}
	held, err := p.take()
	if err != nil {
		return err
	}
	defer held.Close()
	return p.removeLeftovers()
}

// halt kills the first process of the cluster's namespaces; the kernel then
// kills all others.
func (p place) halt() error {
	layout := keeper.Layout{Dir: p.dir}
	pid, err := control.Pid(layout.Socket())
	if err != nil {
		return nil // there is no cluster
	}
	first, err := parentOf(pid)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(first, 0)
	if err != nil {
		return fmt.Errorf("end the cluster: %w", err)
	}
	defer unix.Close(fd)
	// The descriptor is of the process that had this number when it was opened.
	// If the keeper still listens, that was its parent, and the number cannot
	// have gone to another process.
	if again, err := control.Pid(layout.Socket()); err != nil || again != pid || !isFirst(first) {
		return fmt.Errorf("end the cluster: process %d is not its first; try again", first)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return fmt.Errorf("end the cluster: %w", err)
	}
	return waitEnded(fd)
}

// waitEnded waits until the process behind a pidfd, and so all of its namespace,
// has ended.
func waitEnded(fd int) error {
	for {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("end the cluster: %w", err)
		case ended == 0:
			return errors.New("the cluster was killed and does not end: a program that entered a node is not collected by its parent outside; end that one")
		default:
			return nil
		}
	}
}

func parentOf(pid int) (int, error) {
	var parent int
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("end the cluster: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "PPid: %d", &parent); err == nil {
			return parent, nil
		}
	}
	return 0, fmt.Errorf("end the cluster: process %d has no parent", pid)
}

// isFirst reports whether a process is one that pid1.Command started.
func isFirst(pid int) bool {
	words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.HasPrefix(string(words), pid1.Name+"\x00"+pid1.Argument+"\x00")
}
