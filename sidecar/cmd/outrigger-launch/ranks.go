package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
)

// rankFlags holds the flags that give this pod's ranks, in one of two ways.
type rankFlags struct {
	list               string
	pod, perPod, world int
}

func (p *rankFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.list, "ranks", "", "world ranks to start, such as 4-7")
	f.IntVar(&p.pod, "pod", 0, "instead of --ranks: the number of this pod")
	f.IntVar(&p.perPod, "ranks-per-pod", 0, "with --pod: ranks in each pod; the last may have fewer")
	f.IntVar(&p.world, "world", 0, "with --pod: ranks of the job")
}

// bounds returns the first and the last rank of this pod; given reports whether a flag is on
// the command line.
func (p *rankFlags) bounds(given func(flag string) bool) (first, last int, err error) {
	byPod := []string{"pod", "ranks-per-pod", "world"}
	n := 0
	for _, name := range byPod {
		if given(name) {
			n++
		}
	}
	switch {
	case given("ranks") && n > 0:
		return 0, 0, errors.New("name the ranks by --ranks or by --pod, --ranks-per-pod and --world, not by both")
	case given("ranks"):
		return parseRanks(p.list)
	case n < len(byPod):
		return 0, 0, errors.New("name the ranks by --ranks, or by all of --pod, --ranks-per-pod and --world")
	}
	return launch.Share(p.pod, p.perPod, p.world)
}

// parseRanks reads the value of --ranks, FIRST-LAST or a single rank.
func parseRanks(text string) (first, last int, err error) {
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		b = a
	}
	first, err = strconv.Atoi(a)
	if err == nil {
		last, err = strconv.Atoi(b)
	}
	if err != nil || first < 0 || last < first {
		return 0, 0, fmt.Errorf("--ranks %q: want FIRST-LAST, such as 4-7", text)
	}
	return first, last, nil
}
