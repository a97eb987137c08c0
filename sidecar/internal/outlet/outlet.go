// Package outlet passes the output of ranks on to its reader. As long as a job runs, its
// output waits for the reader, as any program's does. The end of a job waits for a
// bounded time: output that a stopped pager, a paused terminal or a full pipe does not
// accept is dropped and counted. Package jobrun, the launcher and the commands write
// through it.
package outlet

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// Bounds of the output that waits for a reader.
const (
	Capacity = 256 << 10 // bytes that Write and Offer may queue
	reserve  = 64 << 10  // bytes that OfferReserved may queue in addition to Capacity
	// piece is the size of one write, unless a line is longer: less than a pipe holds, so
	// that a slow reader is seen to read.
	piece = 16 << 10
)

// StallTimeout is how long a write may take at the end of a job until its reader counts
// as gone; most is how long all writes together may take by default.
const (
	StallTimeout = time.Second
	most         = 5 * time.Second
)

// Writer passes whole writes on to another writer, from a goroutine that exists while
// output waits.
type Writer struct {
	w                  io.Writer
	stallTimeout, most time.Duration

	mu         sync.Mutex // guards the fields below
	queue      []byte
	writing    bool          // the goroutine exists
	began      time.Time     // when the goroutine started
	since      time.Time     // when the write in progress began
	limited    time.Time     // when LimitWait was called; zero: never
	readerGone bool          // the reader counts as gone
	dropped    int64         // bytes dropped
	err        error         // error of the underlying writer, after which nothing more is written
	changed    chan struct{} // closed at every change
	open       any           // the owner of the unfinished line: a *Stream, or the Writer itself; nil: no line is unfinished
}

// New returns a Writer that passes output on to w.
func New(w io.Writer) *Writer {
	return &Writer{w: w, stallTimeout: StallTimeout, most: most, changed: make(chan struct{})}
}

// Wrap returns w itself if it is a Writer, and New(w) otherwise.
func Wrap(w io.Writer) *Writer {
	if o, ok := w.(*Writer); ok {
		return o
	}
	return New(w)
}

// Pair returns the writers of two files, which may be the same, as after 2>&1: then both
// are one Writer, which keeps the order. through wraps each file.
func Pair(out, err *os.File, through func(*os.File) io.Writer) (*Writer, *Writer) {
	o := New(through(out))
	a, errA := out.Stat()
	b, errB := err.Stat()
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return o, o
	}
	return o, New(through(err))
}

// Write waits until there is room. After LimitWait it waits no longer than a stalled
// reader is waited for, and then drops b without an error.
func (o *Writer) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waitRoom(len(b))
	if o.open != o {
		o.endLine()
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		o.open = o
	} else if len(b) > 0 {
		o.open = nil
	}
	return o.put(b)
}

// waitRoom waits until there is room for n bytes. o.mu is held, except while it waits.
func (o *Writer) waitRoom(n int) {
	for o.err == nil && !o.readerGone && len(o.queue) > 0 && len(o.queue)+n > Capacity {
		o.wait()
	}
}

// EndLine ends the unfinished line of a program, so that output of another origin can
// follow.
func (o *Writer) EndLine() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endLine()
}

// endLine implements EndLine. o.mu is held.
func (o *Writer) endLine() {
	if o.open != nil {
		_, _ = o.put([]byte{'\n'}) // the next write reports an error
		o.open = nil
	}
}

// Offer queues b without waiting, and drops it if there is no room.
func (o *Writer) Offer(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue)+len(b) > Capacity {
		o.dropped += int64(len(b))
		return
	}
	o.endLine()
	_, _ = o.put(b) // the caller does not use the error
}

// OfferReserved does what Offer does, for the lines of outrigger itself, such as the verdict
// of a job: some room is reserved for them.
func (o *Writer) OfferReserved(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.readerGone && len(o.queue)+len(text) <= Capacity+reserve {
		o.endLine()
		_, _ = o.put([]byte(text)) // the error has no reader either
	}
}

// NonBlocking returns a writer whose Write is Offer.
func (o *Writer) NonBlocking() io.Writer { return nonBlocking{o} }

type nonBlocking struct{ o *Writer }

func (u nonBlocking) Write(b []byte) (int, error) {
	u.o.Offer(b)
	return len(b), nil
}

// put queues b. o.mu is held.
func (o *Writer) put(b []byte) (int, error) {
	switch {
	case o.err != nil:
		return 0, o.err
	case o.readerGone:
		o.dropped += int64(len(b))
		return len(b), nil
	}
	o.queue = append(o.queue, b...)
	if !o.writing {
		o.writing, o.began = true, time.Now()
		o.since = o.began
		go o.run()
	}
	return len(b), nil
}

// run writes the queue until it is empty.
func (o *Writer) run() {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b []byte
	for len(o.queue) > 0 && o.err == nil {
		n := cut(o.queue)
		b = append(b[:0], o.queue[:n]...)
		o.queue, o.since = o.queue[n:], time.Now()
		o.mu.Unlock()
		_, err := o.w.Write(b)
		o.mu.Lock()
		o.err = err
		o.signal()
	}
	o.queue, o.writing = nil, false
	o.signal()
}

// cut returns how much of b is written at once: whole lines, unless one is longer.
func cut(b []byte) int {
	if len(b) <= piece {
		return len(b)
	}
	if n := bytes.LastIndexByte(b[:piece], '\n') + 1; n > 0 {
		return n
	}
	if n := bytes.IndexByte(b, '\n') + 1; n > 0 {
		return n
	}
	return len(b)
}

// signal wakes all waiting calls. o.mu is held.
func (o *Writer) signal() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// wait waits for a change, and marks the reader as gone at the deadline. o.mu is held,
// except while it waits.
func (o *Writer) wait() {
	changed, limited := o.changed, !o.limited.IsZero()
	var late <-chan time.Time
	if limited {
		timer := time.NewTimer(time.Until(o.deadline()))
		defer timer.Stop()
		late = timer.C
	}
	o.mu.Unlock()
	select {
	case <-changed:
	case <-late:
	}
	o.mu.Lock()
	if limited && !o.limited.IsZero() && o.writing && !time.Now().Before(o.deadline()) {
		o.readerGone = true
		o.dropped += int64(len(o.queue))
		o.queue = nil
		o.signal()
	}
}

// deadline returns when the reader counts as gone. o.mu is held.
func (o *Writer) deadline() time.Time {
	late := o.limited.Add(o.most)
	if t := o.began.Add(o.most); t.After(late) {
		late = t
	}
	if stalled := o.since.Add(o.stallTimeout); stalled.Before(late) {
		return stalled
	}
	return late
}

// LimitWait starts the end of the job: from now on no call waits for a stalled reader
// longer than StallTimeout.
func (o *Writer) LimitWait() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.limited.IsZero() {
		o.limited = time.Now()
		o.signal()
	}
}

// ResetWait reverses LimitWait, for a next job with the same reader.
func (o *Writer) ResetWait() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limited, o.readerGone, o.dropped = time.Time{}, false, 0
	o.endLine()
}

// Flush waits until everything is written, or, after LimitWait, until the reader counts
// as gone, and returns how many bytes were dropped.
func (o *Writer) Flush() (dropped int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing && !o.readerGone {
		o.wait()
	}
	return o.dropped
}

// Err returns the error of a write, as far as it is known: after Flush, of all writes.
// That the reader has closed is no error.
func (o *Writer) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return o.err
}

// WriteLast writes text and waits for it, but no longer than StallTimeout: the last line
// of a program, whose exit must not wait.
func WriteLast(w io.Writer, text string) {
	o := New(w)
	o.LimitWait()
	o.OfferReserved(text)
	o.Flush()
}
