package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/top"
)

// statusLine shows the progress of a job in the last line of a terminal. The job's output
// goes through it: the line is erased before each write and drawn again after it. Without
// a terminal it does nothing.
type statusLine struct {
	terminal io.Writer // nil: there is none
	width    func() int

	mu     sync.Mutex // guards what follows, and writing
	text   string     // "": no line is shown
	shown  bool
	inLine bool // the output ends in the middle of a line, which must not be overwritten
}

// newStatusLine returns a status line on stderr, if that is a terminal that can erase.
func newStatusLine() *statusLine {
	if !term.IsTerminal(int(os.Stderr.Fd())) || os.Getenv("TERM") == "dumb" {
		return &statusLine{}
	}
	return &statusLine{terminal: os.Stderr, width: func() int {
		width, _, err := term.GetSize(int(os.Stderr.Fd()))
		if err != nil || width <= 0 {
			return 80
		}
		return width
	}}
}

// through returns a writer to f that erases the status line before each write.
func (s *statusLine) through(f *os.File) io.Writer {
	if s.terminal == nil || !term.IsTerminal(int(f.Fd())) {
		return f
	}
	return &aboveLine{s, f}
}

// aboveLine writes output above the status line.
type aboveLine struct {
	line *statusLine
	w    io.Writer
}

func (a *aboveLine) Write(b []byte) (int, error) {
	s := a.line
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	n, err := a.w.Write(b)
	s.inLine = len(b) > 0 && b[len(b)-1] != '\n'
	s.draw()
	return n, err
}

// show changes the text; "" removes the line.
func (s *statusLine) show(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
	s.erase()
	s.draw()
}

func (s *statusLine) erase() {
	if s.shown {
		_, _ = io.WriteString(s.terminal, "\r"+ansiEraseLine) // the job does not depend on it
		s.shown = false
	}
}

func (s *statusLine) draw() {
	if s.text == "" || s.inLine || s.terminal == nil {
		return
	}
	_, _ = io.WriteString(s.terminal, s.text[:min(len(s.text), s.width()-1)]) // a line that wraps could not be erased
	s.shown = true
}

// statusPause is the time between two samples of a job.
const statusPause = time.Second

// follow updates the line until ctx ends, and removes it.
func (s *statusLine) follow(ctx context.Context, ranks int, j *jobrun.Job) {
	if s.terminal == nil {
		return
	}
	defer s.show("")
	w := top.Watcher{Fetch: jobrun.FetchReport}
	tick := time.NewTicker(statusPause)
	defer tick.Stop()
	for {
		s.show(statusText(ranks, j.Progress(), w.Sample(ctx, []jobrun.Entry{{Metrics: j.Metrics()}}), time.Now()))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// statusText returns the status line of a job. Its rates lack those of sidecars that have
// been sampled once only or did not answer.
func statusText(ranks int, p jobrun.Progress, jobs []top.Job, now time.Time) string {
	elapsed := now.Sub(p.Begun).Truncate(time.Second)
	text := fmt.Sprintf("outrigger: %d:%02d  ", elapsed/time.Minute, elapsed%time.Minute/time.Second)
	if p.Started < ranks {
		return text + fmt.Sprintf("%d of %d ranks started", p.Started, ranks)
	}
	text += fmt.Sprintf("%d of %d ranks running", p.Alive, ranks)
	messages, megabytes, fresh := 0.0, 0.0, true
	for _, job := range jobs {
		for _, r := range job.Rows {
			if r.Err == nil && !r.Fresh {
				messages, megabytes, fresh = messages+r.Messages, megabytes+r.Sent/1e6, false
			}
		}
	}
	if !fresh {
		text += fmt.Sprintf("  %.0f messages/s  %.1f MB/s", messages, megabytes)
	}
	return text
}
