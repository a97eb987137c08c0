package launch

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// TestLastLines checks that the ranks' last lines are in the message of a pod that has
// failed, and of no other.
func TestLastLines(t *testing.T) {
	for code, want := range map[int]string{0: "", 3: "[4] loading\n[4] panic: no such mesh\n"} {
		r := prepare(t, 4, fmt.Sprintf(`echo loading; printf 'panic: no such mesh' >&2; exit %d`, code))
		read := r.withLog(filepath.Join(t.TempDir(), "log"))
		r.run(t.Context())
		if m := read(); m.Output != want {
			t.Errorf("exit code %d: output %q, want %q", code, m.Output, want)
		}
	}
}

// TestTail checks that tail keeps whole lines, the first and the last ones, in whatever
// pieces they are written.
func TestTail(t *testing.T) {
	for _, piece := range []int{1, 7, 5000} {
		var kept tail
		s := kept.stream("[0] ")
		text := ""
		for i := range 500 {
			text += fmt.Sprintf("line %d\n", i)
		}
		for len(text) > 0 {
			n := min(piece, len(text))
			if m, err := s.Write([]byte(text[:n])); m != n || err != nil {
				t.Fatal(m, err)
			}
			text = text[n:]
		}
		got := kept.String()
		if len(got) > podlife.OutputMax || len(got) < podlife.OutputMax/2 || !strings.HasPrefix(got, "[0] line 0\n[0] line 1\n") || strings.Count(got, "\n...\n") != 1 || !strings.HasSuffix(got, "[0] line 498\n[0] line 499\n") {
			t.Errorf("pieces of %d: %q", piece, got)
		}
	}
	var kept tail
	a, b := kept.stream("[0] "), kept.stream("[1] ")
	_, _ = a.Write([]byte(strings.Repeat("a", 1<<20)))
	_, _ = b.Write([]byte("end"))
	if got := kept.String(); len(got) > podlife.OutputMax || !strings.HasSuffix(got, "[1] end\n") {
		t.Errorf("%q", got)
	}
	for _, n := range []int{1, 10, 90, 100, 110} { // around the most that is kept complete
		var kept tail
		s := kept.stream("[0] ")
		want := ""
		for i := range n {
			_, _ = fmt.Fprintf(s, "%05d\n", i)
			want += fmt.Sprintf("[0] %05d\n", i)
		}
		if got := kept.String(); len(got) > podlife.OutputMax || (got == want) != (len(want) <= podlife.OutputMax) {
			t.Errorf("%d lines: %q", n, got)
		}
	}
}

// lastErrorLine is a Clue for tests.
type lastErrorLine struct{ text string }

func (c *lastErrorLine) Line(line []byte) {
	if text, is := strings.CutPrefix(string(line), "error: "); is {
		c.text = text
	}
}

func (c *lastErrorLine) String() string { return c.text }

// TestClue checks that the reason found in the standard error of a rank is in its event,
// also if the rank has started a daemon that keeps the pipe open, which does not delay the
// end.
func TestClue(t *testing.T) {
	for script, want := range map[string]string{
		"echo error: no; echo error: no mesh >&2; echo the end >&2; exit 3": "exited with code 3: no mesh",
		"printf 'error: no mesh' >&2; exit 3":                               "exited with code 3: no mesh",
		"echo fine >&2; exit 3":                                             "exited with code 3",
		"printf 'error: %02000d\\n' 0 >&2; exit 3":                          "exited with code 3: " + strings.Repeat("0", clueLine-len("error: ")),
		"setsid sleep 1000 & sleep 0.5; echo error: no mesh >&2; exit 3":    "exited with code 3: no mesh",
		"echo error: no mesh >&2; kill -9 $$":                               "was killed by SIGKILL",
	} {
		r := prepare(t, 4, script)
		r.Clue = func() Clue { return new(lastErrorLine) }
		if e := r.run(t.Context()); e == nil || e.Text() != want {
			t.Errorf("%s: %+v, want %q", script, e, want)
		}
	}
}
