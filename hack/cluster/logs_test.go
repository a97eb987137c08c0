package main

import "testing"

func TestLastLines(t *testing.T) {
	for _, c := range []struct {
		text  string
		lines int
		want  string
	}{
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\n", 5, "a\nb\n"},
		{"a\nb", 1, "a\nb"}, // an incomplete last line is added to them
		{"", 3, ""},
	} {
		if got := string(lastLines([]byte(c.text), c.lines)); got != c.want {
			t.Errorf("the last %d lines of %q are %q, want %q", c.lines, c.text, got, c.want)
		}
	}
}
