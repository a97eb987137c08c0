package match

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata; read the difference before you keep it")

// TestTranscripts plays each file of testdata. A file is a sequence of
// paragraphs: comments, commands, a line "----" and what the commands printed.
// All paragraphs of a file share one Queue.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in testdata (%v)", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(string(raw))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(raw), got); diff != "" {
				t.Errorf("transcript differs; if that is meant, run with -update (-want +got):\n%s", diff)
			}
		})
	}
}

// replay returns the transcript with its outputs made anew.
func replay(text string) string {
	s := &stage{q: New(), refs: map[string]Ref{}}
	var paragraphs []string
	for _, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		input, _, runs := strings.Cut(p+"\n", "----\n")
		if runs {
			input += "----\n" + s.run(input)
		}
		paragraphs = append(paragraphs, strings.TrimRight(input, "\n"))
	}
	return strings.Join(paragraphs, "\n\n") + "\n"
}

// stage is the Queue of a transcript; handles are small numbers, and a Ref is
// named by the handle it was given with.
type stage struct {
	q    *Queue
	refs map[string]Ref
}

func (s *stage) run(input string) string {
	var out strings.Builder
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		fmt.Fprintf(&out, "%s\n", s.command(words[0], words[1:]))
	}
	return out.String()
}

func (s *stage) command(name string, args []string) string {
	p, label := parse(args)
	e := Envelope{p.Context, p.Source, p.Tag}
	handle, _ := strconv.ParseUint(strings.TrimLeft(label, "rm"), 10, 32)
	switch name {
	case "post":
		s.refs[label] = s.q.Post(p, uint32(handle))
		return label + " posted"
	case "park":
		s.refs[label] = s.q.Park(e, uint32(handle))
		return label + " parked"
	case "arrive":
		return found(s.q.Arrive(e))("r")
	case "take":
		return found(s.q.Take(p))("m")
	case "peek":
		return found(s.q.Peek(p))("m")
	case "cancel":
		return fmt.Sprintf("cancel %s: %t", label, s.q.Cancel(s.refs[label]))
	case "drop":
		return fmt.Sprintf("drop %s: %t", label, s.q.Drop(s.refs[label]))
	case "show":
		return s.show()
	}
	return "unknown command " + name
}

func found(handle uint32, ok bool) func(prefix string) string {
	return func(prefix string) string {
		if !ok {
			return "nothing"
		}
		return fmt.Sprintf("%s%d", prefix, handle)
	}
}

func (s *stage) show() string {
	out := "posted:"
	s.q.EachPosted(func(h uint32) bool { out += fmt.Sprintf(" r%d", h); return true })
	out += "\nparked:"
	s.q.EachParked(func(h uint32) bool { out += fmt.Sprintf(" m%d", h); return true })
	return out
}

// parse reads "r1 ctx=1 from=2 tag=3 ignore=0xf"; "*" is any.
func parse(args []string) (p Pattern, label string) {
	for _, a := range args {
		key, value, pair := strings.Cut(a, "=")
		n, err := strconv.ParseUint(value, 0, 64)
		switch {
		case !pair:
			label = a
		case value == "*" && key == "from":
			p.Source = AnySource
		case value == "*" && key == "tag":
			p.Ignore = math.MaxUint64
		case err != nil:
			panic(fmt.Sprintf("transcript: %q: %v", a, err))
		case key == "ctx":
			p.Context = uint32(n)
		case key == "from":
			p.Source = uint32(n)
		case key == "tag":
			p.Tag = n
		case key == "ignore":
			p.Ignore = n
		default:
			panic(fmt.Sprintf("transcript: unknown word %q", a))
		}
	}
	return p, label
}
