package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// A pair is one figure of two programs that took turns: values of one index are of one
// round.
type pair struct {
	key
	before, after []float64
}

// ratios returns after divided by before, for each round: above 1 if after is slower.
func (p pair) ratios() []float64 {
	list := make([]float64, len(p.before))
	for i := range list {
		list[i] = p.after[i] / p.before[i]
		if p.test == bandwidth || p.test == rate {
			list[i] = 1 / list[i]
		}
	}
	return list
}

// versus compares a program with an older one: it writes a row for each figure, and for
// each test and peer the geometric mean of the rows.
func versus(w io.Writer, before, after string) error {
	pairs, err := readPairs(before, after)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("| | before | after | after by before: median of the rounds |\n|---|---:|---:|---:|\n")
	var medians []float64
	for i, p := range pairs {
		ratios := p.ratios()
		medians = append(medians, median(ratios))
		fmt.Fprintf(&b, "| %s, %s | %s | %s | %.2f (%.2f-%.2f) |\n", p.title(), p.label(), spread(p.before), spread(p.after),
			median(ratios), slices.Min(ratios), slices.Max(ratios))
		if i+1 == len(pairs) || pairs[i+1].title() != p.title() {
			fmt.Fprintf(&b, "| **%s, all** (geometric mean) | | | **%.2f** |\n", p.title(), geometric(medians))
			medians = nil
		}
	}
	_, err = io.WriteString(w, b.String())
	return err
}

func readPairs(before, after string) ([]pair, error) {
	was, err := readFile(before)
	if err != nil {
		return nil, err
	}
	is, err := readFile(after)
	if err != nil {
		return nil, err
	}
	var pairs []pair
	for k := range maps.Keys(is) {
		if k.test == overlap {
			continue // overlap is a part and may be negative, so that it has no meaningful ratio
		}
		if len(was[k]) == 0 {
			continue // the older program has no such test
		}
		if len(was[k]) != len(is[k]) {
			return nil, fmt.Errorf("%s, %s: %d rounds before and %d after", k.title(), k.label(), len(was[k]), len(is[k]))
		}
		pairs = append(pairs, pair{k, was[k], is[k]})
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%s and %s have no figure in common", before, after)
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		if c := strings.Compare(a.title(), b.title()); c != 0 {
			return c
		}
		return compareRows(a.key, b.key)
	})
	return pairs, nil
}

func readFile(path string) (figures, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the file was only read
	list, err := readFigures(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// title names the test and peer of a table.
func (k key) title() string {
	if k.op != "" {
		return k.peer + " " + k.op
	}
	return k.peer + " " + k.test
}

// spread returns the median, the least and the greatest value.
func spread(values []float64) string {
	return fmt.Sprintf("%s (%s-%s)", number(median(values)), number(slices.Min(values)), number(slices.Max(values)))
}

func geometric(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}
