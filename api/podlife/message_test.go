package podlife

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestForm checks the encoded form, which other programs read.
func TestForm(t *testing.T) {
	m := &Message{Kind: KindRanks, Pod: 1, Failures: []Failure{{
		Rank: 2, Code: 137, Signal: "SIGKILL", Reason: RankKilled, Text: "was killed by SIGKILL", Time: time.Unix(1, 0).UTC(),
	}}}
	const want = `{"kind":"ranks","pod":1,"failures":[{"rank":2,"exitCode":137,"signal":"SIGKILL","reason":"RankKilled","message":"was killed by SIGKILL","time":"1970-01-01T00:00:01Z"}]}` + "\n"
	if got := string(m.Encode()); got != want {
		t.Errorf("form\n%s, want\n%s", got, want)
	}
	s := &Message{Kind: KindSidecar, Traffic: []Traffic{{Transport: "tcp", Peers: 3, Messages: 4, Bytes: 5}}}
	const wantSidecar = `{"kind":"sidecar","pod":0,"traffic":[{"transport":"tcp","peers":3,"messages":4,"bytes":5}]}` + "\n"
	if got := string(s.Encode()); got != wantSidecar {
		t.Errorf("form\n%s, want\n%s", got, wantSidecar)
	}
	for _, m := range []*Message{m, s} {
		got, err := Parse(m.Encode())
		if diff := cmp.Diff(m, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

// TestTruncation: a message with any content is encoded as a complete message that fits and
// can be read. The first failure is kept longest.
func TestTruncation(t *testing.T) {
	for what, text := range map[string]string{
		"long": strings.Repeat("x", 10_000), "quotes": strings.Repeat(`"`, 10_000), "control": strings.Repeat("\x00\n", 5_000),
		"wide": strings.Repeat("語", 3_000), "no UTF-8": strings.Repeat("a\xff", 9_000), "HTML": strings.Repeat("<&>", 3_000),
		"one too many": strings.Repeat("x", textMax-1) + "é",
	} {
		for _, n := range []int{1, 2, FailuresMax, FailuresMax + 5, 1000} {
			m := &Message{Kind: KindRanks, Output: text}
			for i := range n {
				m.Failures = append(m.Failures, Failure{Rank: i, Signal: text, Reason: RankKilled, Text: text, Time: at(0)})
			}
			raw := m.Encode()
			if len(raw) > SizeMax || !strings.HasPrefix(string(raw), `{"kind":"ranks"`) {
				t.Fatalf("%s, %d failures: %d bytes, beginning %.40q", what, n, len(raw), raw)
			}
			m.Failures[0].Signal = "SIGKILL"
			for i := range m.Failures {
				m.Failures[i].Signal = ""
			}
			got, err := Parse(m.Encode())
			if err != nil {
				t.Fatalf("%s, %d failures: %v\n%s", what, n, err, m.Encode())
			}
			if got.Failures[0].Rank != 0 || len(got.Failures[0].Text) < 500 {
				t.Errorf("%s, %d failures: rank %d and %d bytes of text are left", what, n, got.Failures[0].Rank, len(got.Failures[0].Text))
			}
			if len(got.Output) < OutputMax/4 {
				t.Errorf("%s, %d failures: %d bytes of output are left", what, n, len(got.Output))
			}
		}
	}
}

func TestStrictness(t *testing.T) {
	good := `{"kind":"ranks","pod":1,"failures":[{"rank":2,"exitCode":1,"reason":"R","time":"1970-01-01T00:00:01Z"}]}`
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"ranks"`, `"pods"`},
		{`"pod":1`, `"pod":-1`},
		{`"pod":1`, `"pod":99999999`},
		{`"rank":2`, `"rank":-2`},
		{`"rank":2`, `"rank":1048576`},
		{`"exitCode":1`, `"exitCode":0`},
		{`"exitCode":1`, `"exitCode":2147483648`},
		{`"R"`, `""`},
		{`"R"`, `"R r"`},
		{`"R"`, `"R\u0007"`},
		{`"R"`, `"` + strings.Repeat("R", 65) + `"`},
		{`"R"`, `"R","message":"a\nb"`},
		{`"R"`, `"R","signal":"-"`},
		{`"1970-01-01T00:00:01Z"`, `"0001-01-01T00:00:00Z"`},
		{`"1970-01-01T00:00:01Z"`, `7`},
		{`}]}`, `}]}{}`},
		{`}]}`, `}]} x`},
		{`{"kind"`, `[{"kind"`},
		{`]}`, `],"output":"a\u0007"}`},
		{`]}`, `],"output":"` + strings.Repeat("m", OutputMax+1) + `"}`},
		{`]}`, `],"traffic":[{"transport":"t p"}]}`},
		{`]}`, `],"traffic":[{"transport":"tcp","peers":-1}]}`},
		{`]}`, `],"traffic":[` + strings.Repeat(`{"transport":"tcp"},`, 8) + `{"transport":"tcp"}]}`},
		{`"R"`, `"R","message":"` + strings.Repeat("m", 1025) + `"`},
		{`}]}`, `}]}` + strings.Repeat(" ", SizeMax)},
	} {
		if !strings.Contains(good, change[0]) {
			t.Fatalf("%q is not in it", change[0])
		}
		raw := strings.Replace(good, change[0], change[1], 1)
		if m, err := Parse([]byte(raw)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.200s: %+v, %v", raw, m, err)
		}
	}
}

// TestLaterRelease: a message with an unknown field is accepted.
func TestLaterRelease(t *testing.T) {
	m, err := Parse([]byte(`{"kind":"ranks","pod":1,"weather":"fine"}`))
	if err != nil || m.Pod != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

// FuzzParse: an accepted message is the same after it is encoded and parsed again.
func FuzzParse(f *testing.F) {
	for _, m := range []*Message{
		{Kind: KindSidecar, Traffic: []Traffic{{Transport: "tcp", Peers: 1, Messages: 2, Bytes: 3}}},
		{Kind: KindRanks, Pod: 3, Failures: []Failure{exited(1, 2, 3), killed(4, 5)}},
	} {
		f.Add(m.Encode())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Parse(raw)
		if err != nil {
			return
		}
		again := m.Encode()
		got, err := Parse(again)
		if err != nil || len(again) > SizeMax {
			t.Fatalf("%v: %d bytes\n%s", err, len(again), again)
		}
		if len(got.Failures) == len(m.Failures) && !bytes.Equal(got.Encode(), again) {
			t.Errorf("%s\nbecame\n%s", again, got.Encode())
		}
		r := []Report{{Pod: m.Pod, Ranks: 4, Launcher: m, Sidecar: got}, {Pod: 1, FirstRank: 4, Ranks: 4, Launcher: got}}
		Blame(r)
	})
}

// TestCut: a shortened text ends with the mark, and no number loses digits.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"whole", 5, "whole"},
		{"called abort: step 123456 failed", 24, "called abort: step …"},
		{"called abort: step 123456 failed", 28, "called abort: step 123456…"},
		{"residual 0.125 at last", 16, "residual …"},
		{"müßig", 6, "mü…"},
		{"123456789", 6, "123…"}, // the whole text is a number
		{"abc", 2, "ab"},
	} {
		if got := Cut(c.text, c.limit, TextCut); got != c.want || len(got) > c.limit {
			t.Errorf("%q in %d bytes: %q, want %q", c.text, c.limit, got, c.want)
		}
	}
	long := Failure{Rank: 1, Code: 7, Reason: JobAborted, Text: strings.Repeat("x", textMax-4) + " 123456", Time: at(1)}
	m, err := Parse((&Message{Kind: KindRanks, Failures: []Failure{long}}).Encode())
	if err != nil || !strings.HasSuffix(m.Failures[0].Text, " "+TextCut) {
		t.Errorf("%v: %+v", err, m)
	}
}
