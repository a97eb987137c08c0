package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// input is the standard input of rank 0, which inherits this program's: what the rank does not
// read stays for the next program of a script, and nothing is kept here. A terminal is read here
// and passed on, since it stops a background process group that reads it, and only while this
// program is in its foreground.
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
		_, _ = io.Copy(w, os.Stdin) // rank 0 has ended, or the terminal has
		_ = w.Close()
	}()
	return r
}
