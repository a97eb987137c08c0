package remote

import (
	"errors"
	"strings"
)

// withValue holds the options of ssh(1) that are followed by a value.
const withValue = "BbcDEeFIiJLlmOoPpQRSWw"

// Line is a command for another pod.
type Line struct {
	Pod     int
	Command string // the command line, for a shell
}

// errNoCommand refuses an argument list that ssh would take for a login.
var errNoCommand = errors.New("no command: want [OPTIONS] HOST COMMAND, as mpirun calls ssh; there is no login")

// Parse parses the arguments of ssh: options, which are ignored, a host, and the words of a
// command, which a shell at the other end parses again.
func Parse(args []string) (Line, error) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option := args[0]
		args = args[1:]
		if option == "--" {
			break
		}
		// The value may be part of the same word.
		if len(option) == 2 && strings.Contains(withValue, option[1:]) && len(args) > 0 {
			args = args[1:]
		}
	}
	if len(args) == 0 {
		return Line{}, errNoCommand
	}
	pod, err := podOf(args[0])
	if err != nil {
		return Line{}, err
	}
	l := Line{Pod: pod, Command: strings.Join(args[1:], " ")}
	if strings.TrimSpace(l.Command) == "" {
		return Line{}, errNoCommand
	}
	return l, nil
}
