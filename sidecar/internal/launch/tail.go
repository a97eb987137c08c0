package launch

import (
	"bytes"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// tail keeps the first and the last lines that ranks have printed, each with its rank in front, for the
// termination message. Programs print the cause first, and then their usage or follow-up errors. It is
// bounded: headMax bytes of first lines, podlife.OutputMax bytes of last complete lines, and
// podlife.OutputMax bytes for the incomplete line of each stream.
type tail struct {
	mu      sync.Mutex // guards what follows, and the streams' lines
	head    []byte
	full    bool // head accepts no more lines
	ended   []byte
	lost    bool // lines between head and ended were dropped
	streams []*tailStream
}

// headMax bounds the first lines. textLost replaces lines that were dropped.
const (
	headMax  = podlife.OutputMax * 3 / 8
	textLost = "...\n"
)

// tailStream is one stream of a rank.
type tailStream struct {
	of    *tail
	label string
	line  []byte // incomplete line
}

// stream adds a stream whose lines get a label in front.
func (t *tail) stream(label string) *tailStream {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &tailStream{of: t, label: label}
	t.streams = append(t.streams, s)
	return s
}

// Write adds output of a rank. It does not block, and accepts all bytes.
func (s *tailStream) Write(b []byte) (int, error) {
	n := len(b)
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	for {
		if s.of.full && len(b) > podlife.OutputMax { // earlier bytes would be dropped in any case
			b = last(b, podlife.OutputMax)
			s.line, s.of.lost = s.line[:0], true
		}
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		s.line = appendTail(s.line, last(line, podlife.OutputMax))
		if !ended {
			return n, nil
		}
		s.of.end(s)
		s.line, b = s.line[:0], rest
	}
}

// end moves the complete line of a stream to the head or the last lines.
func (t *tail) end(s *tailStream) {
	size := len(s.label) + len(s.line) + 1
	if t.full = t.full || len(t.head)+size > headMax; !t.full {
		t.head = append(append(append(t.head, s.label...), s.line...), '\n')
		return
	}
	t.lost = t.lost || len(t.ended)+size > podlife.OutputMax
	t.ended = append(appendTail(appendTail(t.ended, []byte(s.label)), s.line), '\n')
}

// appendTail appends more to b, and drops the beginning beyond podlife.OutputMax.
func appendTail(b, more []byte) []byte {
	b = append(b, more...)
	if n := len(b) - podlife.OutputMax; n > 0 {
		b = b[:copy(b, b[n:])]
	}
	return b
}

// last returns the last size bytes of b.
func last(b []byte, size int) []byte { return b[max(len(b)-size, 0):] }

// String returns the first whole lines, and the last ones, that fit into podlife.OutputMax
// bytes, or the end of the last one if that is longer.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := bytes.Clone(t.ended)
	for _, s := range t.streams {
		if len(s.line) > 0 {
			rest = append(append(append(rest, s.label...), s.line...), '\n')
		}
	}
	if !t.lost && len(t.head)+len(rest) <= podlife.OutputMax {
		return string(t.head) + string(rest)
	}
	rest = last(rest, podlife.OutputMax-len(t.head)-len(textLost))
	if _, whole, ended := bytes.Cut(rest, []byte{'\n'}); ended && len(whole) > 0 {
		rest = whole // the first line was cut
	}
	return string(t.head) + textLost + string(rest)
}
