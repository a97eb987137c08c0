package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// order is the order of the columns. Other peers follow, by name.
var order = []string{bareLine, chain, wire, openmpiTCP, outriggerTCP, openmpiVader, outriggerLocal}

var units = []struct{ test, title string }{
	{toItself, "A rank to itself, us"},
	{latency, "Latency, us (half a round trip)"},
	{bandwidth, "Bandwidth, MB/s (10^6 bytes a second)"},
	{rate, "Message rate, messages a second"},
	{overlap, "Overlap of transfer and computing (1 is all hidden)"},
}

// render writes one table of figures for each test and then the targets.
func render(w io.Writer, f figures, verdicts []verdict) error {
	var b strings.Builder
	for _, u := range units {
		renderFigures(&b, f, u.test, u.title)
	}
	renderTargets(&b, verdicts)
	_, err := io.WriteString(w, b.String())
	return err
}

// renderFigures writes a row for each size (and side and mode), and a column for each peer.
func renderFigures(b *strings.Builder, f figures, test, title string) {
	var rows []key
	var peers []string
	for k := range f {
		if k.test != test {
			continue
		}
		peers = append(peers, k.peer)
		k.peer = ""
		rows = append(rows, k)
	}
	if len(rows) == 0 {
		return
	}
	slices.SortFunc(rows, compareRows)
	rows = slices.Compact(rows)
	peers = columns(peers)
	fmt.Fprintf(b, "### %s\n\n| | %s |\n|---|%s\n", title, strings.Join(peers, " | "), strings.Repeat("---:|", len(peers)))
	for _, row := range rows {
		cells := make([]string, len(peers))
		for i, peer := range peers {
			k := row
			k.peer = peer
			cells[i] = cell(f, k)
		}
		fmt.Fprintf(b, "| %s | %s |\n", row.label(), strings.Join(cells, " | "))
	}
	b.WriteString("\n")
}

func renderTargets(b *strings.Builder, verdicts []verdict) {
	b.WriteString("### Targets\n\n| target | bound | figure | base | ratio | |\n|---|---|---:|---:|---:|---|\n")
	for _, v := range verdicts {
		bound := fmt.Sprintf("at most %g", v.bound)
		if v.atLeast {
			bound = fmt.Sprintf("at least %g", v.bound)
		}
		if len(v.missing) > 0 {
			fmt.Fprintf(b, "| %s | %s | | | | ABSENT: %s |\n", v.name, bound, names(v.missing))
			continue
		}
		base, ratio := "", ""
		if v.target.base != nil {
			base, ratio = number(v.base), fmt.Sprintf("%.2f", v.ratio)
		}
		word := "MISS"
		if v.met {
			word = "PASS"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", v.name, bound, number(v.figure), base, ratio, word)
	}
}

func compareRows(a, b key) int {
	return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(b.mode, a.mode), cmp.Compare(b.side, a.side))
}

// columns returns the peers in order, each once.
func columns(peers []string) []string {
	set := map[string]bool{}
	for _, p := range peers {
		set[p] = true
	}
	place := func(p string) int {
		if i := slices.Index(order, p); i >= 0 {
			return i
		}
		return len(order)
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
	})
}

func cell(f figures, k key) string {
	if v, ok := f.median(k); ok {
		return number(v)
	}
	return ""
}

// number keeps about three significant digits and never prints an exponent.
func number(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (k key) label() string {
	text := size(k.bytes)
	if k.side != "" {
		text += " " + k.side
	}
	if k.mode != "" {
		text += ", computing: " + k.mode
	}
	return text
}

func size(bytes int) string {
	switch {
	case bytes >= mib && bytes%mib == 0:
		return fmt.Sprintf("%d MiB", bytes/mib)
	case bytes >= kib && bytes%kib == 0:
		return fmt.Sprintf("%d KiB", bytes/kib)
	}
	return fmt.Sprintf("%d B", bytes)
}

func names(keys []key) string {
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = fmt.Sprintf("%s %s %s", k.peer, k.test, k.label())
	}
	return strings.Join(words, "; ")
}
