package remote

import (
	"errors"
	"strings"
)

// withValue are the options of ssh(1) that are followed by a value.
const withValue = "BbcDEeFIiJLlmOoPpQRSWw"

// Line is a command for another pod.
type Line struct {
	Pod     int
	Command string // for a shell
}

// errNoCommand refuses what ssh would make a login of.
var errNoCommand = errors.New("no command: want [OPTIONS] HOST COMMAND, as mpirun calls ssh; there is no login")

// Parse reads the arguments of an ssh: options, which have no meaning here, a host,
// and the words of a command, which a shell at the other end puts together again.
func Parse(args []string) (Line, error) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option := args[0]
		args = args[1:]
		if option == "--" {
			break
		}
		// A value may be in the same word.
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
