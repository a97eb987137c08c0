package launch

import (
	"bytes"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// tail keeps the last lines that ranks have printed, each with its rank in front, for the
// termination message. Its size is bounded: by podlife.OutputMax for ended lines, and as much
// for the line of each stream that is not ended.
type tail struct {
	mu      sync.Mutex // guards what follows, and the streams' lines
	ended   []byte
	streams []*tailStream
}

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
	if len(b) > podlife.OutputMax { // what comes before leaves no trace
		b = b[len(b)-podlife.OutputMax:]
		s.line = s.line[:0]
	}
	for {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		s.line = last(append(s.line, line...))
		if !ended {
			return n, nil
		}
		s.of.ended = append(s.of.line(s), '\n')
		s.line, b = s.line[:0], rest
	}
}

// line returns the ended lines with that of a stream behind, not longer than what is kept.
func (t *tail) line(s *tailStream) []byte {
	return last(append(append(t.ended, s.label...), s.line...))
}

// last keeps the end of b, in its place.
func last(b []byte) []byte {
	if n := len(b) - podlife.OutputMax; n > 0 {
		b = b[:copy(b, b[n:])]
	}
	return b
}

// String returns the last whole lines that fit into podlife.OutputMax bytes, or the end of
// the last one if that is longer.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := bytes.Clone(t.ended)
	for _, s := range t.streams {
		if len(s.line) > 0 {
			all = append(append(append(all, s.label...), s.line...), '\n')
		}
	}
	if n := len(all) - podlife.OutputMax; n > 0 {
		all = all[n:]
	}
	if len(all) == podlife.OutputMax { // its first line was cut
		if _, rest, ended := bytes.Cut(all, []byte{'\n'}); ended && len(rest) > 0 {
			all = rest
		}
	}
	return string(all)
}
