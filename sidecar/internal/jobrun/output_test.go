package jobrun

import (
	"strings"
	"testing"
)

// pieces keeps the bytes of each Write apart.
type pieces []string

func (p *pieces) Write(b []byte) (int, error) {
	*p = append(*p, string(b))
	return len(b), nil
}

func TestLinesArePassedOnWhole(t *testing.T) {
	var got pieces
	l := &lineWriter{w: &got}
	for _, part := range []string{"one", " line\n", "two\nthree\nfo", "ur", "\n", "rest"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	l.flush()
	l.flush()
	want := "one line\n|two\nthree\n|four\n|rest\n"
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("written %q, want %q", s, want)
	}
}

func TestLineWithoutEndIsBounded(t *testing.T) {
	var got pieces
	l := &lineWriter{w: &got}
	for range 100 {
		if _, err := l.Write(make([]byte, lineMax/8)); err != nil {
			t.Fatal(err)
		}
		if len(l.part) >= lineMax {
			t.Fatalf("%d bytes are kept", len(l.part))
		}
	}
	l.flush()
	if n := len(strings.Join(got, "")); n != 100*lineMax/8+1 && n != 100*lineMax/8 {
		t.Errorf("%d bytes came out", n)
	}
}

func TestLastLineOfALog(t *testing.T) {
	var got pieces
	log := &tailWriter{w: &got}
	l := &lineWriter{w: log}
	for _, part := range []string{"a\nb\n", "the ca", "use\n"} {
		if _, err := l.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if log.last() != "the cause" {
		t.Errorf("last line %q", log.last())
	}
}
