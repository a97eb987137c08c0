package mpi

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// Clue finds in a rank's output why its MPI has ended the rank: an MPI reports to process
// management that a rank aborts, and prints the reason only. The first reason counts, since
// the errors of other ranks that an mpirun prints follow from it.
type Clue struct {
	text  string
	stack bool // lines of MPICH's error stack follow, the last of which has the reason
}

// clueMax bounds the reason, in bytes.
const clueMax = 200

// Line examines a line of the rank's standard error.
func (c *Clue) Line(line []byte) {
	line = bytes.TrimSpace(line)
	switch {
	case c.stack:
		text, is := stackLine(line)
		c.stack = is
		if text != "" {
			c.setText(text)
		}
	case c.text != "":
	case bytes.HasPrefix(line, []byte("outrigger-launch: ")): // printed by an mpirun's daemon
		c.setText(string(line[len("outrigger-launch: "):]))
	case bytes.HasPrefix(line, []byte("outrigger: refused by the sidecar: ")): // printed by the provider
		c.setText(string(line[len("outrigger: "):]))
	case bytes.HasPrefix(line, []byte("Abort(")) || bytes.HasPrefix(line, []byte("Fatal error in ")):
		// Abort(CODE) on node 0 (rank 0 in comm 0): Fatal error in internal_Recv: ...,
		// error stack:
		if _, text, is := bytes.Cut(line, []byte("Fatal error in ")); is {
			c.setText(string(text))
			c.stack = bytes.HasSuffix(line, []byte("error stack:"))
		}
	default:
		// [pod-0:123] *** MPI_ERR_TRUNCATE: message truncated
		if _, text, is := bytes.Cut(line, []byte("*** MPI_ERR_")); is {
			c.setText("MPI_ERR_" + string(text))
		}
	}
}

// stackLine returns the text of a line of MPICH's error stack, such as `MPIC_Wait(99).....:
// text`, or false if the line is not part of one.
func stackLine(line []byte) (text string, is bool) {
	location, after, is := bytes.Cut(line, []byte(":"))
	location = bytes.TrimRight(location, ".")
	if !is || !bytes.HasSuffix(location, []byte(")")) || bytes.ContainsAny(location, " \t") {
		return "", false
	}
	return string(bytes.TrimSpace(after)), true
}

// printable returns a program's text as it may appear in a status, or in a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
}

func (c *Clue) setText(text string) {
	c.text = podlife.Cut(strings.TrimSpace(printable(text)), clueMax, podlife.TextCut)
}

// String returns the reason, or an empty text if the rank has printed none.
func (c *Clue) String() string { return c.text }
