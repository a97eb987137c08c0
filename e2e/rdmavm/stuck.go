package rdmavm

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
)

// errStuck is wrapped when a processor of a machine has stood still. It is the
// emulator's doing: of two processors one did not get its timer's interrupts any more,
// while QEMU's main loop spun (seen on 2026-11-24, QEMU 7.2). No program in the machine
// can do that to it.
var errStuck = errors.New("a processor of the virtual machine stands still")

// stuckAfter is how many seconds it stands still before that is believed. The kernel says
// so from 20 on, which a busy host can bring about.
const stuckAfter = 60

var lockup = regexp.MustCompile(`soft lockup - CPU#\d+ stuck for (\d+)s!`)

// console passes on what a machine's kernel says, and calls stuck when that is that a
// processor stands still.
type console struct {
	to    io.Writer
	stuck func()
	line  []byte // what has come of it
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
