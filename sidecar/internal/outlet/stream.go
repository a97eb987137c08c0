package outlet

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// Bounds of what a Stream keeps of a line without its end.
const (
	// LineMax is when its beginning is passed on at once: lines of programs that mean to
	// print lines are shorter.
	LineMax = 64 << 10
	// Pause is when it is passed on at the latest: a person takes a prompt or a progress
	// line that comes later for a program that hangs. Until then a line is not cut by
	// another stream's.
	Pause = 100 * time.Millisecond
)

// Labels say how the lines of a stream are marked.
type Labels int

// The labels of a stream's lines.
const (
	Unmarked Labels = iota // bytes pass as they come, and nothing is added
	Marked                 // each line gets the stream's label
	Relayed                // each line has a label already, [RANK], put there by another Stream
)

// Stream is what one process prints into a Writer that several processes share. Whole lines
// pass at once. A line without its end passes after Pause, or at LineMax bytes. If lines are
// marked, it is ended where another stream's line follows, and its rest gets the label again.
type Stream struct {
	to    *Writer
	mode  Labels
	pause time.Duration

	mu    sync.Mutex // guards what follows; before Writer.mu
	label []byte     // of the line that is not ended, if mode is Relayed
	part  []byte     // what is kept
	mid   bool       // what was passed on has no line end
	late  *time.Timer
}

// Stream makes a stream into o; label is that of Marked lines.
func (o *Writer) Stream(mode Labels, label string) *Stream {
	return &Stream{to: o, mode: mode, label: []byte(label), pause: Pause}
}

// Write takes all, and reports no error: a process must not end because its output is read
// no longer.
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
	if len(s.part) > 0 && s.late == nil {
		var timer *time.Timer
		timer = time.AfterFunc(s.pause, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.late == timer { // else it was ended while this waited
				s.rest()
			}
		})
		s.late = timer
	}
	return len(b), nil
}

// Flush passes on what is kept. It adds no line end.
func (s *Stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest()
}

// rest is Flush. s.mu is held.
func (s *Stream) rest() {
	s.disarm()
	if len(s.part) > 0 {
		s.pass(s.part)
		s.part = s.part[:0]
	}
}

// disarm ends the wait for the end of a line. s.mu is held.
func (s *Stream) disarm() {
	if s.late != nil {
		s.late.Stop()
		s.late = nil
	}
}

// pass passes b on. A label is short, and a line may be shorter: marked lines go one by
// one, so that what waits for the reader stays bounded. s.mu is held.
func (s *Stream) pass(b []byte) {
	if s.mode != Marked {
		s.put(b)
		return
	}
	for line := range bytes.Lines(b) {
		s.put(line)
	}
}

// put queues b, one line or its part if lines are marked here. s.mu is held.
func (s *Stream) put(b []byte) {
	o := s.to
	o.mu.Lock()
	defer o.mu.Unlock()
	o.room(len(b))
	cut := s.mode != Unmarked && o.open != s // another stream's line, or none, is under way
	if cut && s.mid && b[0] == '\n' {
		if b, s.mid = b[1:], false; len(b) == 0 { // that line was ended when it was cut
			return
		}
	}
	if cut && o.open != nil {
		_, _ = o.put([]byte{'\n'}) // as below
	}
	if cut && s.mid || s.mode == Marked && !s.mid {
		_, _ = o.put(s.label) // as below
	}
	_, _ = o.put(b) // nothing is left to be told
	last := b[bytes.LastIndexByte(b, '\n')+1:]
	if s.mode == Relayed && (len(last) < len(b) || !s.mid) {
		s.label = append(s.label[:0], labelOf(last)...)
	}
	s.mid, o.open = len(last) > 0, nil
	if s.mid {
		o.open = s
	}
}

// labelMax is the longest label that is known again: that of a rank of 10 digits.
const labelMax = len("[1234567890] ")

// labelOf is the label at the beginning of a line; empty: it has none.
func labelOf(line []byte) []byte {
	end := bytes.Index(line[:min(len(line), labelMax)], []byte("] "))
	if end < 1 || line[0] != '[' {
		return nil
	}
	return line[:end+len("] ")]
}
