package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// render returns the text of a run in the document: the origin of the results, and the tables.
func (r *run) render() string {
	var b strings.Builder
	b.WriteString("`" + r.Command + "`, " + r.Date)
	for _, part := range []string{r.Commit, r.Machine, r.Conditions} {
		if part != "" {
			b.WriteString(", " + part)
		}
	}
	b.WriteString(".\n")
	if r.Outdated != "" {
		b.WriteString("**Outdated:** " + r.Outdated + "\n")
	}
	for _, t := range r.Tables {
		b.WriteString("\n")
		if t.Title != "" {
			b.WriteString(t.Title + ":\n\n")
		}
		t.render(&b)
	}
	return b.String()
}

func (t table) render(b *strings.Builder) {
	judged := slices.ContainsFunc(t.Rows, func(r row) bool { return r.Target != nil })
	fmt.Fprintf(b, "| | %s |", strings.Join(t.Columns, " | "))
	if judged {
		b.WriteString(" target | |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(t.Columns)))
	if judged {
		b.WriteString("---|---|")
	}
	b.WriteString("\n")
	for _, r := range t.Rows {
		b.WriteString("| " + r.label() + " |")
		for _, v := range r.Values {
			b.WriteString(" " + v.String() + " |")
		}
		if judged {
			b.WriteString(r.verdict(t.Columns))
		}
		b.WriteString("\n")
	}
}

func (r row) label() string {
	if r.Unit == "" {
		return r.Name
	}
	return r.Name + ", " + r.Unit
}

// verdict returns the last two cells of a row: the target, and whether it was met.
func (r row) verdict(columns []string) string {
	if r.Target == nil {
		return " | |"
	}
	text := r.Target.String()
	if r.Target.Source != "" {
		text += " (" + r.Target.Source + ")"
	}
	judged, missed := r.judge(columns)
	switch {
	case len(missed) == 0:
		return " " + text + " | met |"
	case len(missed) == judged:
		return " " + text + " | **missed** |"
	}
	return " " + text + " | **missed:** " + strings.Join(missed, "; ") + " |"
}

// missed returns a line for each run that misses targets and is not outdated.
func missed(runs map[string]*run) string {
	var b strings.Builder
	targets, met := 0, 0
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		var labels []string
		if runs[name].Outdated != "" {
			continue
		}
		for _, t := range runs[name].Tables {
			for _, r := range t.Rows {
				if r.Target == nil {
					continue
				}
				targets++
				if _, columns := r.judge(t.Columns); len(columns) == 0 {
					met++
				} else {
					labels = append(labels, r.Name)
				}
			}
		}
		if len(labels) > 0 {
			fmt.Fprintf(&b, "- %s: %s\n", name, strings.Join(labels, "; "))
		}
	}
	return fmt.Sprintf("%d of %d targets are met. Missed, by run:\n%s", met, targets, b.String())
}
