package outlet

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// never is the pause of a stream whose unfinished lines only Flush passes on.
const never = time.Hour

// streams returns a Writer with a stream for each label; relayed ones have the label in
// the bytes written.
func streams(mode Labels, labels ...string) (*bytes.Buffer, *Writer, []*Stream) {
	got := new(bytes.Buffer)
	o := New(got)
	var list []*Stream
	for _, label := range labels {
		s := o.Stream(mode, label)
		s.pause = never
		list = append(list, s)
	}
	return got, o, list
}

// TestBytesPassUnchanged checks that a stream without labels passes all bytes unchanged.
func TestBytesPassUnchanged(t *testing.T) {
	b := append(bytes.Repeat([]byte("x"), 200_000), 1, 0xff, 'z')
	binary := make([]byte, 300_000)
	r := rand.New(rand.NewPCG(1, 2)) // a repeatable input
	for i := range binary {
		binary[i] = byte(r.Uint32())
	}
	for what, want := range map[string][]byte{"no newline": b, "binary": binary, "lines": bytes.Repeat([]byte("ab\n"), 70_000), "nothing": nil} {
		t.Run(what, func(t *testing.T) {
			got, o, s := streams(Unmarked, "")
			for rest := want; len(rest) > 0; {
				n := min(1+r.IntN(40_000), len(rest))
				write(t, s[0], rest[:n])
				if rest = rest[n:]; len(s[0].part) >= LineMax {
					t.Fatalf("%d bytes are kept", len(s[0].part))
				}
			}
			s[0].Flush()
			if o.Flush(); !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d bytes of %d were passed on, or other ones", got.Len(), len(want))
			}
		})
	}
}

// TestUnfinishedLineIsShown checks that an unfinished line passes after the pause, before
// the job ends.
func TestUnfinishedLineIsShown(t *testing.T) {
	for _, mode := range []Labels{Unmarked, Marked, Relayed} {
		r := &reader{tokens: make(chan struct{})}
		s := New(r).Stream(mode, "")
		s.pause = time.Millisecond
		for _, text := range []string{"step 1 ", "step 2 ", "\rdone"} {
			write(t, s, []byte(text))
			r.tokens <- struct{}{} // waits until a write happens
		}
		s.to.Flush()
		if r.String() != "step 1 step 2 \rdone" {
			t.Errorf("%q", r.String())
		}
	}
}

// TestLinesOfStreams checks the output of two streams.
func TestLinesOfStreams(t *testing.T) {
	type step struct {
		from int // 2: a line of this program
		text string
	}
	for _, c := range []struct {
		what  string
		mode  Labels
		steps []step // "" passes on the waiting bytes
		want  string
	}{
		{"whole lines pass at once", Marked, []step{{0, "a\nb\n"}, {1, "c\n"}}, "[0] a\n[0] b\n[1] c\n"},
		{"a line is not cut", Marked, []step{{0, "a"}, {1, "b\n"}, {0, "c\n"}}, "[1] b\n[0] ac\n"},
		{"a line goes on", Marked, []step{{0, "a "}, {0, ""}, {0, "b\n"}}, "[0] a b\n"},
		{"nothing is added at the end", Marked, []step{{0, "a"}, {0, ""}}, "[0] a"},
		{"another's line follows", Marked, []step{{0, "a "}, {0, ""}, {1, "b\n"}, {0, "c\n"}}, "[0] a \n[1] b\n[0] c\n"},
		{"the end of a line that was cut", Marked, []step{{0, "a"}, {0, ""}, {1, "b\n"}, {0, "\nc\n"}}, "[0] a\n[1] b\n[0] c\n"},
		{"both unfinished", Marked, []step{{0, "a"}, {0, ""}, {1, "b"}, {1, ""}, {0, "c"}, {0, ""}}, "[0] a\n[1] b\n[0] c"},
		{"our own line follows", Marked, []step{{0, "a"}, {0, ""}, {2, "o\n"}, {0, "b\n"}}, "[0] a\no\n[0] b\n"},
		{"unmarked ones are not ended by each other", Unmarked, []step{{0, "a "}, {0, ""}, {1, "b\n"}, {0, "c"}, {0, ""}}, "a b\nc"},
		{"our own line ends an unmarked one", Unmarked, []step{{0, "a"}, {0, ""}, {2, "o\n"}, {0, "b"}, {0, ""}}, "a\no\nb"},
		{"relayed lines keep their labels", Relayed, []step{{0, "[0] a\n[4] b"}, {0, ""}, {1, "[1] c\n"}, {0, "d\n[0] e\n"}}, "[0] a\n[4] b\n[1] c\n[4] d\n[0] e\n"},
		{"a relayed line goes on twice", Relayed, []step{{0, "[4] a"}, {0, ""}, {0, "b"}, {0, ""}, {1, "[1] c\n"}, {0, "d"}, {0, ""}, {1, "[1] e\n"}, {0, "\n"}}, "[4] ab\n[1] c\n[4] d\n[1] e\n"},
		{"a relayed line without a label", Relayed, []step{{0, "a"}, {0, ""}, {1, "[1] c\n"}, {0, "d\n"}}, "a\n[1] c\nd\n"},
	} {
		t.Run(c.what, func(t *testing.T) {
			got, o, s := streams(c.mode, "[0] ", "[1] ")
			for _, step := range c.steps {
				switch {
				case step.from == 2:
					o.OfferReserved(step.text)
				case step.text == "":
					s[step.from].Flush()
				default:
					write(t, s[step.from], []byte(step.text))
				}
			}
			if o.Flush(); got.String() != c.want {
				t.Errorf("%q, want %q", got.String(), c.want)
			}
			for _, s := range s {
				s.Flush()
			}
		})
	}
}

// TestStreamsWaitForTheirReader checks that marked short lines of a fast writer stay
// bounded.
func TestStreamsWaitForTheirReader(t *testing.T) {
	r := &reader{tokens: make(chan struct{})}
	o := New(r)
	var wg sync.WaitGroup
	const lines = 100_000
	for i := range 2 {
		s := o.Stream(Marked, fmt.Sprintf("[%d] ", i))
		wg.Go(func() {
			_, _ = s.Write(bytes.Repeat([]byte("\n"), lines)) // checked below
			s.Flush()
		})
	}
	r.tokens <- struct{}{}
	o.mu.Lock()
	if n := len(o.queue); n > Capacity+labelMax {
		t.Errorf("%d bytes wait", n)
	}
	o.mu.Unlock()
	close(r.tokens)
	wg.Wait()
	if o.Flush(); strings.Count(r.String(), "[0] \n") != lines || strings.Count(r.String(), "[1] \n") != lines {
		t.Errorf("%d bytes were passed on", len(r.String()))
	}
}
