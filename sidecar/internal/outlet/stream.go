package outlet

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// Bounds of an unfinished line in a Stream.
const (
	// LineMax is the size at which the beginning of an unfinished line is passed on at once. Text
	// has shorter lines.
	LineMax = 64 << 10
	// Pause is the time after which it is passed on: with a longer pause a user would
	// think that a program with a prompt or a progress line hangs. Until then another
	// stream does not cut the line.
	Pause = 100 * time.Millisecond
)

// Labels is how the lines of a stream are marked.
type Labels int

// The labels of a stream's lines.
const (
	Unmarked Labels = iota // bytes pass unchanged, and nothing is added
	Marked                 // each line gets the stream's label
	Relayed                // each line has a label already, [RANK], from another Stream
)

// Stream is the output of one process into a Writer that several processes share. Whole
// lines pass at once. An unfinished line passes after Pause, or at LineMax bytes. If
// lines are marked, another stream's line ends an unfinished line, and its rest gets the
// label again.
type Stream struct {
	to    *Writer
	mode  Labels
	pause time.Duration

	mu      sync.Mutex // guards the fields below; locked before Writer.mu
	label   []byte     // label of the unfinished line, if mode is Relayed
	part    []byte     // bytes that are not passed on yet
	midLine bool       // the last byte passed on is not a line end
	timer   *time.Timer
}

// Stream returns a stream into o; label is the label of Marked lines.
func (o *Writer) Stream(mode Labels, label string) *Stream {
	return &Stream{to: o, mode: mode, label: []byte(label), pause: Pause}
}

// Write accepts all of b, and reports no error: a process must not end because its output
// is not read any more.
func (s *Stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = append(s.part, b...)
	end := bytes.LastIndexByte(s.part, '\n') + 1
	if len(s.part)-end >= LineMax {
		end = len(s.part)
	}
	if end > 0 {
		s.pass(s.part[:end])
		s.part = slices.Delete(s.part, 0, end)
		s.disarm()
	}
	if len(s.part) > 0 && s.timer == nil {
		var timer *time.Timer
		timer = time.AfterFunc(s.pause, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.timer == timer { // otherwise it was stopped while this waited
				s.flush()
			}
		})
		s.timer = timer
	}
	return len(b), nil
}

// Flush passes on the waiting bytes. It adds no line end.
func (s *Stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
}

// flush implements Flush. s.mu is held.
func (s *Stream) flush() {
	s.disarm()
	if len(s.part) > 0 {
		s.pass(s.part)
		s.part = s.part[:0]
	}
}

// disarm stops the timer of an unfinished line. s.mu is held.
func (s *Stream) disarm() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// pass passes b on. Marked lines go one by one, because labels may be longer than the
// lines, and the waiting output must stay bounded. s.mu is held.
func (s *Stream) pass(b []byte) {
	if s.mode != Marked {
		s.put(b)
		return
	}
	for line := range bytes.Lines(b) {
		s.put(line)
	}
}

// put queues b, one line or a part of it if lines are marked here. s.mu is held.
func (s *Stream) put(b []byte) {
	o := s.to
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waitRoom(len(b))
	cut := s.mode != Unmarked && o.open != s // another stream's line is unfinished, or none is
	if cut && s.midLine && b[0] == '\n' {
		if b, s.midLine = b[1:], false; len(b) == 0 { // that line was ended when it was cut
			return
		}
	}
	if cut && o.open != nil {
		_, _ = o.put([]byte{'\n'}) // as below
	}
	if cut && s.midLine || s.mode == Marked && !s.midLine {
		_, _ = o.put(s.label) // as below
	}
	_, _ = o.put(b) // the caller ignores errors
	last := b[bytes.LastIndexByte(b, '\n')+1:]
	if s.mode == Relayed && (len(last) < len(b) || !s.midLine) {
		s.label = append(s.label[:0], labelOf(last)...)
	}
	s.midLine, o.open = len(last) > 0, nil
	if s.midLine {
		o.open = s
	}
}

// labelMax is the longest label that is recognized: that of a rank of 10 digits.
const labelMax = len("[1234567890] ")

// labelOf returns the label at the beginning of a line, or nil if it has none.
func labelOf(line []byte) []byte {
	end := bytes.Index(line[:min(len(line), labelMax)], []byte("] "))
	if end < 1 || line[0] != '[' {
		return nil
	}
	return line[:end+len("] ")]
}
