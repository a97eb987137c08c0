// Command results writes the results of docs/benchmarks/*.json into docs/BENCHMARKS.md.
//
// A file has the results of one run: machine, date, commit, command, and tables of rows
// with name, unit, values and target. The document says which results it has, and where:
//
//	<!-- results: NAME -->
//	<!-- end -->
//
// Everything between these two lines is replaced. The name "missed" is the list of the
// targets that are missed. Runs that have no place in the document are in
// docs/benchmarks/README.md.
//
// To add or renew a run, pass what the benchmark prints, and write the documents again:
//
//	hack/bench/peers.sh | go run ./hack/bench/results -record docs/benchmarks/peers.json -command hack/bench/peers.sh
//	make gen
package main

//go:generate go run . ../../../docs

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	file := flag.String("record", "", "write this `file` of a run from the Markdown on standard input")
	command := flag.String("command", "", "with -record: the command that has printed it")
	conditions := flag.String("conditions", "", "with -record: rounds, load, what differs from the usual")
	flag.Parse()
	var err error
	switch {
	case *file != "" && *command != "" && flag.NArg() == 0:
		err = record(*file, os.Stdin, *command, *conditions)
	case *file == "" && flag.NArg() == 1:
		err = write(flag.Arg(0))
	default:
		fmt.Fprintln(os.Stderr, "usage: results DOCS\n       COMMAND | results -record docs/benchmarks/NAME.json -command COMMAND [-conditions TEXT]")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

// write writes the documents in a folder.
func write(docs string) error {
	texts, err := documents(docs)
	if err != nil {
		return err
	}
	for file, text := range texts {
		if err := os.WriteFile(filepath.Join(docs, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Paths of the files that have results, below the folder of documents.
const (
	mainFile = "BENCHMARKS.md"
	restFile = "benchmarks/README.md"
)

// documents returns the texts of both files, by name.
func documents(docs string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(docs, mainFile))
	if err != nil {
		return nil, err
	}
	runs, err := read(filepath.Join(docs, "benchmarks"))
	if err != nil {
		return nil, err
	}
	filled, placed, err := fill(string(text), runs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", mainFile, err)
	}
	return map[string]string{mainFile: filled, restFile: rest(runs, placed)}, nil
}

// read parses the files of a folder; a run is named as its file, without .json.
func read(folder string) (map[string]*run, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	runs := map[string]*run{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		runs[strings.TrimSuffix(filepath.Base(file), ".json")] = r
	}
	return runs, nil
}

const ofMissed = "missed"

var place = regexp.MustCompile(`(?s)<!-- results: (\S+) -->\n.*?<!-- end -->`)

// fill writes runs into the places of a document, and returns the names of the runs that it wrote.
func fill(text string, runs map[string]*run) (filled string, placed []string, err error) {
	var errs []error
	for _, m := range place.FindAllStringSubmatch(text, -1) {
		switch name := m[1]; {
		case name == ofMissed:
		case slices.Contains(placed, name):
			errs = append(errs, fmt.Errorf("there are two places for %s", name))
		case runs[name] == nil:
			errs = append(errs, fmt.Errorf("there is a place for %s, and no file %s.json", name, name))
		default:
			placed = append(placed, name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", nil, err
	}
	return place.ReplaceAllStringFunc(text, func(old string) string {
		name := place.FindStringSubmatch(old)[1]
		results := ""
		if name == ofMissed {
			results = missed(runs)
		} else {
			results = runs[name].render()
		}
		begin, _, _ := strings.Cut(old, "\n")
		return begin + "\n" + results + "<!-- end -->"
	}), placed, nil
}

// rest returns the document of the runs that are not placed elsewhere.
func rest(runs map[string]*run, placed []string) string {
	var b strings.Builder
	b.WriteString("# Further results\n\nWritten by `make gen` from the files of this folder: those that [BENCHMARKS.md](../BENCHMARKS.md) does not have.\n")
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		if slices.Contains(placed, name) {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", name)
		if about := runs[name].About; about != "" {
			b.WriteString(about + "\n\n")
		}
		b.WriteString(runs[name].render())
	}
	return b.String()
}
