package podlife

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Shells and container runtimes report 128 + N as the exit code of a process that
// signal N ended. Linux has signals 1 to 64.
const (
	signalBase = 128
	signalMax  = 64
)

// OfExit returns why a rank failed if only the exit code of its container is known, and
// the name of the signal if one ended it. A reported signal takes precedence over the
// code.
func OfExit(code int, signal string) (reason Reason, name string) {
	if signal == "" && code > signalBase && code <= signalBase+signalMax {
		signal = SignalName(code - signalBase)
	}
	if signal != "" {
		return RankKilled, signal
	}
	return RankExited, ""
}

// SignalName returns the name of a signal, such as SIGKILL; SIG34 for one without a
// name.
func SignalName(number int) string {
	if name := unix.SignalName(syscall.Signal(number)); name != "" {
		return name
	}
	return fmt.Sprint("SIG", number)
}

// exitText describes how a rank ended, for a person.
func exitText(code int, signal string) string {
	if signal != "" {
		return "was killed by " + signal
	}
	return fmt.Sprintf("exited with code %d", code)
}
