package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// sizeFlag is a flag for a number of bytes. A number without a unit is MiB, for
// compatibility with earlier versions.
type sizeFlag int64

func (s *sizeFlag) String() string {
	if *s == 0 {
		return "" // the flag's help describes the default
	}
	return fmt.Sprintf("%dMiB", *s>>20)
}

// Set implements pflag.Value.
func (s *sizeFlag) Set(text string) error {
	n, err := memory.Parse(text, 1<<20)
	*s = sizeFlag(n)
	return err
}

// Type implements pflag.Value: help prints it.
func (s *sizeFlag) Type() string { return "size" }

// replaceNP returns args with -np and --np, which every mpirun accepts, replaced by -n.
// The arguments after -- are the program's and stay as they are.
func replaceNP(args []string) []string {
	if len(args) == 0 || args[0] != "run" && args[0] != "bench" {
		return args
	}
	args = slices.Clone(args)
	for i, a := range args {
		word, value, hasValue := strings.Cut(a, "=")
		switch {
		case a == "--":
			return args
		case word != "-np" && word != "--np":
		case hasValue:
			args[i] = "-n=" + value
		default:
			args[i] = "-n"
		}
	}
	return args
}

// noCommand returns the error for an unknown command, with the commands of similar names.
func noCommand(root *cobra.Command, args []string) error {
	name, meant := "", ""
	if i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }); i >= 0 {
		name = args[i]
	}
	if names := root.SuggestionsFor(name); len(names) > 0 {
		meant = fmt.Sprintf(" (%s?)", strings.Join(names, ", "))
	}
	return fmt.Errorf("unknown command %q%s; `%s --help` lists the commands", name, meant, root.Name())
}

// flagError returns the error for a wrong flag without the terms of Go's parsers, and
// names the command that lists the flags.
func flagError(cmd *cobra.Command, err error) error {
	var number *strconv.NumError
	text := err.Error()
	if errors.As(err, &number) {
		if before, _, ok := strings.Cut(text, ": strconv."); ok {
			text = before + ": want a number"
			if number.Func == "ParseBool" {
				text = before + ": want true or false, or the flag alone"
			}
		}
	} else if before, what, ok := strings.Cut(text, ": strconv."); ok {
		text = before + ": want a number"
		switch {
		case strings.Contains(what, "out of range"):
			text += " that is smaller"
		case strings.HasPrefix(what, "ParseBool"):
			text = before + ": want true or false, or the flag alone"
		}
	} else if before, _, ok := strings.Cut(text, ": time: "); ok {
		text = before + ": want a time such as 90s, 10m or 1h30m"
	}
	return fmt.Errorf("%s; `%s --help` lists the flags", text, cmd.CommandPath())
}
