package pmi

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of PMI-1, as the answer to get_maxes has them.
const (
	nameMax  = 256
	keyMax   = 64
	valueMax = 1024
	lineMax  = 4096 // of a request, newline included
)

// errLine reports a request that no PMI-1 library sends.
var errLine = errors.New("not a PMI-1 request")

// request is one line of a rank: cmd=NAME and fields.
type request struct {
	cmd    string
	fields map[string]string
}

// parse parses a line without its newline. The last field may be a value, or the text of an
// abort, with blanks and equals signs in it; it is recognized by its name.
func parse(line string) (request, error) {
	r := request{fields: map[string]string{}}
	if len(line) >= lineMax {
		return r, fmt.Errorf("%w: longer than %d bytes", errLine, lineMax)
	}
	for line != "" {
		word := line
		if strings.HasPrefix(line, "value=") || strings.HasPrefix(line, "message=") {
			line = ""
		} else {
			word, line, _ = strings.Cut(line, " ")
		}
		if word == "" {
			continue
		}
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			continue // a word without a name
		}
		if _, twice := r.fields[key]; twice {
			return r, fmt.Errorf("%w: %q twice", errLine, key)
		}
		r.fields[key] = value
	}
	r.cmd = r.fields["cmd"]
	if r.cmd == "" {
		return r, fmt.Errorf("%w: no cmd", errLine)
	}
	return r, nil
}

// checkPair returns an error if a key or its value is invalid.
func checkPair(key, value string) error {
	switch {
	case key == "" || len(key) > keyMax:
		return fmt.Errorf("key of %d bytes, want 1 to %d", len(key), keyMax)
	case len(value) > valueMax:
		return fmt.Errorf("value of %d bytes, at most %d", len(value), valueMax)
	case strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c == '=' || c == 0x7f }):
		return fmt.Errorf("key %q", key)
	case strings.ContainsAny(value, "\n\x00"):
		return fmt.Errorf("value of key %q has a newline or a zero", key)
	}
	return nil
}

// fold makes a text fit into a field: PMI has no quotes.
func fold(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "=", ":")), "_")
}
