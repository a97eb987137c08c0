package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// record writes the file of a run from the Markdown that a benchmark has printed. The
// description and the targets, which a benchmark does not print, are kept from the file of an
// earlier run.
func record(file string, in io.Reader, command, conditions string) error {
	r := &run{
		Command: command, Conditions: conditions, Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		Commit: commit(), Machine: machine(),
	}
	var err error
	if r.Tables, err = tables(in); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	default:
		earlier, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		r.keep(earlier)
	}
	text, err = json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if _, err := parse(text); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// keep copies the description and the targets of an earlier run.
func (r *run) keep(earlier *run) {
	r.About = earlier.About
	for i := range r.Tables {
		t := &r.Tables[i]
		at := slices.IndexFunc(earlier.Tables, func(x table) bool { return x.Title == t.Title })
		if at < 0 {
			continue
		}
		for j := range t.Rows {
			x := &t.Rows[j]
			k := slices.IndexFunc(earlier.Tables[at].Rows, func(y row) bool { return y.Name == x.Name && y.Unit == x.Unit })
			if k >= 0 && x.Target == nil && earlier.Tables[at].Rows[k].Target != nil {
				target := *earlier.Tables[at].Rows[k].Target
				target.Missed = false // Missed is the verdict on the earlier figures
				x.Target = &target
			}
		}
	}
}

// tables reads Markdown tables. The title of a table is the heading before it.
func tables(in io.Reader) ([]table, error) {
	var list []table
	title, open := "", false
	var header []string
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		text := strings.TrimSpace(lines.Text())
		cells := strings.Split(strings.Trim(text, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case strings.HasPrefix(text, "#"):
			title, open = strings.TrimSpace(strings.TrimLeft(text, "#")), false
		case !strings.HasPrefix(text, "|"):
			open = false
		case !open:
			header, open = cells, true
			list = append(list, table{Title: title, Columns: columns(header)})
		case strings.HasPrefix(text, "|--"):
		default:
			r, err := parseRow(header, cells)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			t := &list[len(list)-1]
			t.Rows = append(t.Rows, r)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("the benchmark's output has no table; pass its standard output")
	}
	return list, nil
}

// columns returns the columns with numbers: without the first one, the target and the
// verdict.
func columns(header []string) (list []string) {
	for _, name := range header[1:] {
		if name != "" && !isTarget(name) {
			list = append(list, name)
		}
	}
	return list
}

func isTarget(column string) bool { return column == "bound" || column == "target" }

// parseRow reads a row whose cells belong to the columns of header.
func parseRow(header, cells []string) (row, error) {
	r := row{Name: strings.Trim(cells[0], "*")}
	if len(cells) != len(header) {
		return r, fmt.Errorf("row %q has %d cells, the header %d", r.Name, len(cells), len(header))
	}
	for i, text := range cells[1:] {
		switch name := header[i+1]; {
		case isTarget(name):
			t, err := parseTarget(text)
			if err != nil {
				return r, fmt.Errorf("row %q: %w", r.Name, err)
			}
			r.Target = t
		case name == "":
			if strings.HasPrefix(text, "ABSENT") {
				return r, fmt.Errorf("row %q: %s", r.Name, text)
			}
			if r.Target != nil && (text == "MISS" || strings.Contains(text, "missed")) {
				r.Target.Missed = true
			}
		default:
			v, err := parseCell(text)
			if err != nil {
				return r, fmt.Errorf("row %q, column %q: %w", r.Name, name, err)
			}
			r.Values = append(r.Values, v)
		}
	}
	if r.Target == nil {
		return r, nil
	}
	// A target of a row with a base bounds the ratio, and otherwise the figure.
	names := columns(header)
	at := slices.Index(names, "ratio")
	if at < 0 || r.Values[at].number == "" {
		at = 0
	}
	r.Target.Of = []string{names[at]}
	return r, nil
}

var bound = regexp.MustCompile(`^at (most|least) ([0-9.]+)`)

func parseTarget(text string) (*target, error) {
	m := bound.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("target %q, want \"at most N\" or \"at least N\"", text)
	}
	n := json.Number(m[2])
	if m[1] == "most" {
		return &target{AtMost: &n}, nil
	}
	return &target{AtLeast: &n}, nil
}

// A cell is a number, which may be followed by a ratio or by the least and the most of the
// rounds in parentheses.
var cell = regexp.MustCompile(`^\+?(-?[0-9.]+)(?: %)?(?: \(\+?(-?[0-9.]+)(?:(?:-| to )\+?(-?[0-9.]+))?\))?$`)

func parseCell(text string) (value, error) {
	text = strings.Trim(text, "*`")
	if text == "" {
		return value{}, nil
	}
	m := cell.FindStringSubmatch(text)
	if m == nil {
		return value{}, fmt.Errorf("%q is not a number, a number with a ratio, or a number with least and most", text)
	}
	v := value{number: json.Number(m[1])}
	if m[3] != "" {
		v.least, v.most = json.Number(m[2]), json.Number(m[3])
	} else {
		v.ratio = json.Number(m[2])
	}
	return v, nil
}

// MarshalJSON returns the form that UnmarshalJSON reads.
func (v value) MarshalJSON() ([]byte, error) {
	switch {
	case len(v.single) > 0:
		return json.Marshal(v.single)
	case v.ratio != "" || v.least != "":
		return json.Marshal(struct {
			Value json.Number `json:"value,omitempty"`
			Ratio json.Number `json:"ratio,omitempty"`
			Least json.Number `json:"least,omitempty"`
			Most  json.Number `json:"most,omitempty"`
		}{v.number, v.ratio, v.least, v.most})
	case v.number == "":
		return []byte("null"), nil
	}
	return []byte(v.number), nil
}

// commit returns the commit of the tree, marked if there are local changes; "" without git.
func commit() string {
	text, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// machine describes this machine as far as results depend on it.
func machine() string {
	text := fmt.Sprintf("%d cores", runtime.NumCPU())
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		text += ", Linux " + strings.TrimSpace(string(release))
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return text
	}
	for line := range strings.Lines(string(info)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model) + ", " + text
		}
	}
	return text
}
