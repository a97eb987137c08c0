package match

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/golden"
)

// TestTranscripts runs each file of testdata. All paragraphs of a file share one Queue.
func TestTranscripts(t *testing.T) {
	golden.Transcripts(t, func(*testing.T) func([]string) string {
		s := &stage{q: New(), refs: map[string]Ref{}}
		return func(words []string) string { return s.command(words[0], words[1:]) + "\n" }
	})
}

// stage is the Queue of a transcript. Handles are small numbers, and a Ref is named by the
// handle with which it was made.
type stage struct {
	q    *Queue
	refs map[string]Ref
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

// parse parses "r1 ctx=1 from=2 tag=3 ignore=0xf"; "*" is any value.
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
