package core

import "testing"

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"no sense":                     "no sense",
		"größer als π":                 "größer als π",
		"one\ntwo\r\tthree\x00":        "one two  three ",
		"\x1b[31mred\x1b]0;title\x07":  " [31mred ]0;title ",
		"cut \xcf":                     "cut ?",
		"turned \u202eround, \u0085C1": "turned  round,  C1",
	} {
		got := oneLine([]byte(text))
		if got != want || len(got) > len(text) {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}
