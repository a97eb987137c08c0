package launch

import (
	"bytes"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// tail keeps the first and the last lines that ranks have printed, each with its rank in front,
// for the termination message: programs say first what was wrong, and then how they are used,
// or what follows from it. Its size is bounded: by headMax for the first lines,
// podlife.OutputMax for the last ones that have ended, and as much for the line of each stream
// that is not ended.
type tail struct {
	mu      sync.Mutex // guards what follows, and the streams' lines
	head    []byte
	full    bool // the head takes no more
	ended   []byte
	lost    bool // lines between the two
	streams []*tailStream
}

// headMax bounds the first lines, and textLost is in the place of those that are left out.
const (
	headMax  = podlife.OutputMax * 3 / 8
	textLost = "...\n"
)

// tailStream is one stream of a rank.
type tailStream struct {
	of    *tail
	label string
	line  []byte // that is not ended
}

// stream begins a stream whose lines get a label.
func (t *tail) stream(label string) *tailStream {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &tailStream{of: t, label: label}
	t.streams = append(t.streams, s)
	return s
}

// Write notes what a rank has printed. It never waits, and takes all.
func (s *tailStream) Write(b []byte) (int, error) {
	n := len(b)
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	for {
		if s.of.full && len(b) > podlife.OutputMax { // what comes before leaves no trace
			b = last(b, podlife.OutputMax)
			s.line, s.of.lost = s.line[:0], true
		}
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		s.line = keep(s.line, last(line, podlife.OutputMax))
		if !ended {
			return n, nil
		}
		s.of.end(s)
		s.line, b = s.line[:0], rest
	}
}

// end takes the line of a stream, which has ended.
func (t *tail) end(s *tailStream) {
	size := len(s.label) + len(s.line) + 1
	if t.full = t.full || len(t.head)+size > headMax; !t.full {
		t.head = append(append(append(t.head, s.label...), s.line...), '\n')
		return
	}
	t.lost = t.lost || len(t.ended)+size > podlife.OutputMax
	t.ended = append(keep(keep(t.ended, []byte(s.label)), s.line), '\n')
}

// keep puts more behind b, of which it keeps the end.
func keep(b, more []byte) []byte {
	b = append(b, more...)
	if n := len(b) - podlife.OutputMax; n > 0 {
		b = b[:copy(b, b[n:])]
	}
	return b
}

// last is the end of b.
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
