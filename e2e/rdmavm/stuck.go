package rdmavm

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
)

// errStuck is wrapped by the error for a machine with a stuck processor. The emulator is the
// cause: one of two processors got no more timer interrupts, while QEMU's main loop used all
// of a CPU (seen on 2026-11-24, QEMU 7.2). No program in the machine can cause this.
var errStuck = errors.New("a processor of the virtual machine stands still")

// stuckAfter is the number of seconds from which a reported lockup counts. The kernel reports
// lockups from 20 seconds on, but a busy host can cause those.
const stuckAfter = 60

var lockup = regexp.MustCompile(`soft lockup - CPU#\d+ stuck for (\d+)s!`)

// console writes the kernel's output of a machine to another writer, and calls stuck if the
// output reports that a processor has been stuck for at least stuckAfter seconds.
type console struct {
	to    io.Writer
	stuck func()
	line  []byte // the part of the current line that has been written so far
}

func (c *console) Write(b []byte) (int, error) {
	for part := range bytes.Lines(b) {
		c.line = append(c.line, part...)
		if part[len(part)-1] != '\n' {
			break
		}
		if m := lockup.FindSubmatch(c.line); m != nil {
			if seconds, err := strconv.Atoi(string(m[1])); err == nil && seconds >= stuckAfter {
				c.stuck()
			}
		}
		c.line = c.line[:0]
	}
	return c.to.Write(b)
}
