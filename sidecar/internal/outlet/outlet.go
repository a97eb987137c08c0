// Package outlet is the way of what ranks print to whoever reads it. As long as a
// job runs its output waits for the reader, as any program's does. The end of a
// job never waits for one: what a pager that stands still, a paused terminal or a
// full pipe does not take is dropped and counted.
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

// Bounds of what is kept for a reader.
const (
	Capacity = 256 << 10 // what Write and Offer keep
	reserve  = 64 << 10  // more, for Tell
	// piece is what is written at once, if lines are not longer: less than a pipe
	// has room for, so that a slow reader is seen to read.
	piece = 16 << 10
)

// Patience is how long a write may take at the end of a job until its reader
// counts as gone, and most how long all writes may take by default.
const (
	Patience = time.Second
	most     = 5 * time.Second
)

// Writer passes whole writes on to another writer, from a goroutine that is there
// while something waits to be written.
type Writer struct {
	w              io.Writer
	patience, most time.Duration

	mu        sync.Mutex // guards what follows
	queue     []byte
	writing   bool          // the goroutine is there
	began     time.Time     // the goroutine did
	since     time.Time     // the write that is under way began
	hurried   time.Time     // zero: nobody is in a hurry
	abandoned bool          // the reader counts as gone
	lost      int64         // bytes
	err       error         // of the writer: nothing is written any more
	changed   chan struct{} // closed at every change
	open      any           // whose line is not ended: a *Stream, or the Writer itself; nil: no line is open
}

// New passes on to w.
func New(w io.Writer) *Writer {
	return &Writer{w: w, patience: Patience, most: most, changed: make(chan struct{})}
}

// Of is w itself if it is a Writer, else New(w).
func Of(w io.Writer) *Writer {
	if o, ok := w.(*Writer); ok {
		return o
	}
	return New(w)
}

// Pair makes the writers of two files that may be the same, as behind 2>&1: then
// there is one for both, which keeps their order. through decorates a file.
func Pair(out, err *os.File, through func(*os.File) io.Writer) (*Writer, *Writer) {
	o := New(through(out))
	a, errA := out.Stat()
	b, errB := err.Stat()
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return o, o
	}
	return o, New(through(err))
}

// Write waits until there is room. After Hurry it waits no longer than the reader
// has patience for, and what finds no room is dropped: then it reports no error.
func (o *Writer) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.room(len(b))
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

// room waits until there is room for n bytes. o.mu is held, but not while it waits.
func (o *Writer) room(n int) {
	for o.err == nil && !o.abandoned && len(o.queue) > 0 && len(o.queue)+n > Capacity {
		o.wait()
	}
}

// EndLine ends the line that a program has not ended: a line of another origin follows.
func (o *Writer) EndLine() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endLine()
}

// endLine is EndLine. o.mu is held.
func (o *Writer) endLine() {
	if o.open != nil {
		_, _ = o.put([]byte{'\n'}) // what follows says whether it could be written
		o.open = nil
	}
}

// Offer never waits: what finds no room is dropped.
func (o *Writer) Offer(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue)+len(b) > Capacity {
		o.lost += int64(len(b))
		return
	}
	o.endLine()
	_, _ = o.put(b) // nobody asks
}

// Tell is Offer for the last words of a job: some room is kept for them.
func (o *Writer) Tell(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.abandoned && len(o.queue)+len(text) <= Capacity+reserve {
		o.endLine()
		_, _ = o.put([]byte(text)) // nobody could be told
	}
}

// Unwaited is a Writer whose Write is Offer.
func (o *Writer) Unwaited() io.Writer { return unwaited{o} }

type unwaited struct{ o *Writer }

func (u unwaited) Write(b []byte) (int, error) {
	u.o.Offer(b)
	return len(b), nil
}

// put queues b. o.mu is held.
func (o *Writer) put(b []byte) (int, error) {
	switch {
	case o.err != nil:
		return 0, o.err
	case o.abandoned:
		o.lost += int64(len(b))
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

// run writes what is queued, until there is nothing.
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
		o.tell()
	}
	o.queue, o.writing = nil, false
	o.tell()
}

// cut is how much of b is written at once: whole lines, unless one is longer.
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

// tell wakes those that wait. o.mu is held.
func (o *Writer) tell() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// wait waits for a change, and takes the reader for gone when it has had its
// time. o.mu is held, but not while it waits.
func (o *Writer) wait() {
	changed, hurried := o.changed, !o.hurried.IsZero()
	var late <-chan time.Time
	if hurried {
		timer := time.NewTimer(time.Until(o.until()))
		defer timer.Stop()
		late = timer.C
	}
	o.mu.Unlock()
	select {
	case <-changed:
	case <-late:
	}
	o.mu.Lock()
	if hurried && !o.hurried.IsZero() && o.writing && !time.Now().Before(o.until()) {
		o.abandoned = true
		o.lost += int64(len(o.queue))
		o.queue = nil
		o.tell()
	}
}

// until is when the reader counts as gone. o.mu is held.
func (o *Writer) until() time.Time {
	late := o.hurried.Add(o.most)
	if t := o.began.Add(o.most); t.After(late) {
		late = t
	}
	if stalled := o.since.Add(o.patience); stalled.Before(late) {
		return stalled
	}
	return late
}

// Hurry says that the job ends: from now on nobody waits for a reader that takes
// nothing.
func (o *Writer) Hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hurried.IsZero() {
		o.hurried = time.Now()
		o.tell()
	}
}

// Relax takes Hurry back, for a next job with the same reader.
func (o *Writer) Relax() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hurried, o.abandoned, o.lost = time.Time{}, false, 0
	o.endLine()
}

// Flush waits until all has been written, or after Hurry as long as the reader
// has patience for, and returns how many bytes have been dropped.
func (o *Writer) Flush() (lost int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing && !o.abandoned {
		o.wait()
	}
	return o.lost
}

// Err is why output could not be written, as far as it is known: after Flush, all
// of it. A reader that has gone is no reason.
func (o *Writer) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return o.err
}

// Say writes text and waits for it, but no longer than Patience: the last word of
// a program, whose exit must not wait.
func Say(w io.Writer, text string) {
	o := New(w)
	o.Hurry()
	o.Tell(text)
	o.Flush()
}
