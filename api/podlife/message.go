// Package podlife is the format of the termination messages that a pod's programs leave
// at their end, and the search for the first failure in them. The kubelet keeps a
// container's termination message in the pod's status. The launcher writes which ranks
// failed, and the sidecar the failure that the job's sidecars agreed on. Blame
// determines the first failure from the messages of all pods.
package podlife

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of a message. Longer parts are cut when it is written, and refused when it is
// read.
const (
	SizeMax     = 4096 // maximum size of a termination message in bytes; the kubelet reads no more
	FailuresMax = 8
	TrafficMax  = 8
	textMax     = 1024 // maximum length of Failure.Text in bytes
	clueMax     = 256  // maximum length of Failure.Clue in bytes
	OutputMax   = 1024 // maximum length of Message.Output in bytes
	wordMax     = 64   // maximum length of a reason, a signal or a transport in bytes
	rankMax     = 1 << 20
	codeMax     = 1<<31 - 1 // an abort may have any code
)

// ErrInvalid is wrapped by all errors about a message.
var ErrInvalid = errors.New("termination message")

// Kind is the kind of program that wrote a message.
type Kind string

// Kinds of messages.
const (
	KindRanks   Kind = "ranks"   // a message of the launcher about the ranks of its pod
	KindSidecar Kind = "sidecar" // a message of the sidecar about the job
)

// Message is a container's termination message.
type Message struct {
	Kind Kind `json:"kind"`
	Pod  int  `json:"pod"`
	// Failures are, in a launcher's message, the failures of the pod's ranks, earliest
	// first; in a sidecar's, the one failure that the job's sidecars agreed on.
	Failures []Failure `json:"failures,omitempty"`
	// Traffic is what a sidecar's ranks have sent, one entry per transport in use.
	Traffic []Traffic `json:"traffic,omitempty"`
	// Output has the first and the last lines that the pod's ranks have printed, in the
	// message of a launcher whose pod has failed.
	Output string `json:"output,omitempty"`
	// Outcome is the result of the pod's ranks, in the message of a launcher whose
	// ranks have all ended with code 0; empty: the launcher could not ask its sidecar,
	// or is of an earlier release.
	Outcome Outcome `json:"outcome,omitempty"`
}

// Outcome is the result of a pod's ranks, all of which have ended with code 0.
type Outcome string

// Outcomes. An unknown word is of a later release, and counts as none.
const (
	OutcomeClosed Outcome = "Closed" // the ranks closed in order, and their sidecar knew of no failure
	OutcomeFailed Outcome = "Failed" // the sidecar of the ranks knew of a failure of the job
)

// NoRank is the Rank of a Failure that is not of a known rank.
const NoRank = -1

// Failure is one failure of a rank or of the job.
type Failure struct {
	Rank   int       `json:"rank"`             // world rank, or NoRank
	Code   int       `json:"exitCode"`         // never 0; 128+N for signal N, as shells report it
	Signal string    `json:"signal,omitempty"` // name of the signal that ended it, SIGKILL
	Reason Reason    `json:"reason"`
	Text   string    `json:"message,omitempty"` // description of the failure, for a person
	Clue   string    `json:"clue,omitempty"`    // the reason that the rank has printed
	Time   time.Time `json:"time"`              // time of the failure, by the clock of the pod's node
}

// Traffic is the traffic over one transport.
type Traffic struct {
	Transport string `json:"transport"` // name of the transport: local, node, tcp or rdma
	Peers     int    `json:"peers"`     // number of other pods that are reached by this transport
	Messages  uint64 `json:"messages"`  // number of messages that the ranks of this pod have sent
	Bytes     uint64 `json:"bytes"`     // bytes of those messages
}

// Encode returns the encoded message, at most SizeMax bytes and always valid: parts
// that do not fit are left out, the last failures first, then the first half of the
// output.
func (m *Message) Encode() []byte {
	c := *m
	c.Failures = nil
	for _, f := range m.Failures[:min(len(m.Failures), FailuresMax)] {
		f.Code = min(max(f.Code, 1), codeMax)
		f.Clue = clean(f.Clue, clueMax)
		f.Text, f.Signal, f.Reason = clean(f.Text, textMax), clean(f.Signal, wordMax), Reason(clean(string(f.Reason), wordMax))
		c.Failures = append(c.Failures, f)
	}
	c.Output, c.Outcome = lines(m.Output), Outcome(clean(string(m.Outcome), wordMax))
	c.Traffic = m.Traffic[:min(len(m.Traffic), TrafficMax)]
	for {
		raw := form(&c)
		last := len(c.Failures) - 1
		switch {
		case len(raw) <= SizeMax:
			return raw
		case last > 0:
			c.Failures = c.Failures[:last]
		case c.Output != "":
			c.Output = strings.TrimLeftFunc(c.Output[(len(c.Output)+1)/2:], notStart)
		case last < 0:
			return raw
		default:
			c.Failures[0].Text = clean(c.Failures[0].Text, len(c.Failures[0].Text)/2)
		}
	}
}

func form(m *Message) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the message is not HTML, and escapes would make it longer
	if err := e.Encode(m); err != nil {
		panic("podlife: " + err.Error()) // strings, numbers and times of this century can always be encoded
	}
	return b.Bytes()
}

// lines makes the last OutputMax bytes of text printable, and keeps newlines.
func lines(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
	if n := len(text) - OutputMax; n > 0 {
		for !utf8.RuneStart(text[n]) {
			n++
		}
		text = text[n:]
	}
	return text
}

// notStart reports whether r is a part of a character that was cut.
func notStart(r rune) bool { return r == utf8.RuneError }

// clean makes text printable and at most limit bytes long.
func clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
	return Cut(text, limit, TextCut)
}

// Cut shortens text to at most limit bytes. A shortened text ends with mark. It is cut at the
// end of a character and not within a number, since a part of a number would be another
// number.
func Cut(text string, limit int, mark string) string {
	if len(text) <= limit {
		return text
	}
	if limit < len(mark) {
		mark = ""
	}
	at := limit - len(mark)
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	if number := strings.TrimRight(text[:at], "0123456789."); number != "" && number != text[:at] && text[at] >= '0' && text[at] <= '9' {
		at = len(number)
	}
	return text[:at] + mark
}

// Parse reads a message. An application can also write into its container's termination
// message, so only what Parse has checked may be relied on.
func Parse(raw []byte) (*Message, error) {
	if len(raw) > SizeMax {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrInvalid, len(raw), SizeMax)
	}
	dec := json.NewDecoder(bytes.NewReader(raw)) // an unknown field is of a later release
	m := new(Message)
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows it", ErrInvalid)
	}
	return m, m.validate()
}

func (m *Message) validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, a...))
	}
	switch {
	case m.Kind != KindRanks && m.Kind != KindSidecar:
		return bad("kind is %q, want %q or %q", m.Kind, KindRanks, KindSidecar)
	case m.Pod < 0 || m.Pod >= rankMax:
		return bad("pod is %d", m.Pod)
	case len(m.Failures) > FailuresMax || len(m.Traffic) > TrafficMax:
		return bad("%d failures and %d transports, want at most %d and %d", len(m.Failures), len(m.Traffic), FailuresMax, TrafficMax)
	}
	if m.Outcome != "" && !word(string(m.Outcome)) {
		return bad("outcome is %.80q, want a word of letters and digits", m.Outcome)
	}
	if m.Output != lines(m.Output) {
		return bad("output is over %d bytes or not printable", OutputMax)
	}
	for i := range m.Failures {
		switch f := &m.Failures[i]; {
		case f.Rank < NoRank || f.Rank >= rankMax:
			return bad("failures[%d].rank is %d", i, f.Rank)
		case f.Code < 1 || f.Code > codeMax:
			return bad("failures[%d].exitCode is %d, want 1 to %d", i, f.Code, codeMax)
		case !word(string(f.Reason)) || f.Signal != "" && !word(f.Signal):
			return bad("failures[%d] has the reason %.80q and the signal %.80q, want words of letters and digits", i, f.Reason, f.Signal)
		case f.Text != clean(f.Text, textMax):
			return bad("failures[%d].message is over %d bytes or not printable", i, textMax)
		case f.Clue != clean(f.Clue, clueMax):
			return bad("failures[%d].clue is over %d bytes or not printable", i, clueMax)
		case f.Time.IsZero():
			return bad("failures[%d] has no time", i)
		}
	}
	for i, t := range m.Traffic {
		if !word(t.Transport) || t.Peers < 0 || t.Peers > rankMax {
			return bad("traffic[%d] has the transport %.80q with %d peers", i, t.Transport, t.Peers)
		}
	}
	return nil
}

// word reports whether text is a name of letters and digits.
func word(text string) bool {
	if text == "" || len(text) > wordMax {
		return false
	}
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return false
		}
	}
	return true
}
