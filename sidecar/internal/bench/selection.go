package bench

import (
	"fmt"
	"slices"
	"strings"
)

// The tests, by the names that a command line and a figure use.
const (
	Self        = "self"
	Latency     = "latency"
	Bandwidth   = "bandwidth"
	Rate        = "rate"
	Overlap     = "overlap"
	Collectives = "collectives"
	Fairness    = "fairness"
	Reuse       = "reuse"
	OneSided    = "onesided"
	Bowtie      = "bowtie"
	Channels    = "channels"
)

// Tests are all tests in the order in which they run.
var Tests = []string{Self, Latency, Bandwidth, Rate, Overlap, Collectives, Fairness, Reuse, OneSided, Bowtie, Channels}

// Pairwise are the tests between two ranks, which every peer has too.
var Pairwise = Tests[1:5]

// Variants returns the settings between which a test takes turns, with a job for each: of
// tuning.reuse, of tuning.rendezvous for bowtie, and of tuning.channel for channels. The other
// settings are compared with the first. nil: the test runs once.
func Variants(test string) []string {
	switch test {
	case Reuse, OneSided:
		return []string{"off", "auto"}
	case Bowtie:
		return []string{"getcqe", "get", "putnr", "put", "rput"}
	case Channels:
		return []string{"basic", "piggyback", "pipeline", "zerocopy"}
	}
	return nil
}

// Select checks the names of tests, and returns them in the order of Tests, each once.
func Select(names []string) ([]string, error) {
	var chosen []string
	for _, t := range Tests {
		if slices.Contains(names, t) {
			chosen = append(chosen, t)
		}
	}
	for _, n := range names {
		if !slices.Contains(Tests, n) {
			return nil, fmt.Errorf("no test is called %q; the tests are %s", n, strings.Join(Tests, ", "))
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no test is chosen; the tests are %s", strings.Join(Tests, ", "))
	}
	return chosen, nil
}
