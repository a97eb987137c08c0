package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
)

// place says which ranks are this pod's, in one of two ways.
type place struct {
	list               string
	pod, perPod, world int
}

func (p *place) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.list, "ranks", "", "world ranks to start, such as 4-7")
	f.IntVar(&p.pod, "pod", 0, "instead of --ranks: the number of this pod")
	f.IntVar(&p.perPod, "ranks-per-pod", 0, "with --pod: ranks in each pod; the last may have fewer")
	f.IntVar(&p.world, "world", 0, "with --pod: ranks of the job")
}

// ranks finds the first and the last rank.
func (p *place) ranks(given func(flag string) bool) (first, last int, err error) {
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
