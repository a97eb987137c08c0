package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// input returns the standard input of rank 0. The rank inherits this program's, so that the
// data that it does not read remains for the next program of a script. A terminal stops a
// background process group that reads it, and ranks are such groups: it is read here and
// passed on through a pipe, if this program is in the foreground.
func input() *os.File {
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err != nil {
		return os.Stdin
	}
	group, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	go func() {
		_, _ = io.Copy(w, os.Stdin) // an error means that rank 0 or the terminal has ended
		_ = w.Close()
	}()
	return r
}
