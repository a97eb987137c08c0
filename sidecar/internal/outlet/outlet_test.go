package outlet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reader is a writer whose reader accepts one write for each token.
type reader struct {
	tokens chan struct{}
	mu     sync.Mutex
	got    bytes.Buffer
	writes int
}

func (r *reader) Write(b []byte) (int, error) {
	<-r.tokens
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	return r.got.Write(b)
}

func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got.String()
}

// still returns a reader that accepts nothing until it is released.
func still(t *testing.T) (r *reader, o *Writer) {
	t.Helper()
	r = &reader{tokens: make(chan struct{})}
	o = New(r)
	t.Cleanup(func() {
		close(r.tokens)
		o.ResetWait()
		o.Flush()
	})
	return r, o
}

func write(t *testing.T, o io.Writer, b []byte) {
	t.Helper()
	if n, err := o.Write(b); n != len(b) || err != nil {
		t.Fatal(n, err)
	}
}

// TestAllIsWritten checks that everything is written in order and by whole lines, even by
// several writers at once.
func TestAllIsWritten(t *testing.T) {
	var got bytes.Buffer
	o := New(&got)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 5000 {
				_, _ = fmt.Fprintf(o, "%d %d %s\n", i, n, strings.Repeat("x", n%300)) // checked below
			}
		})
	}
	wg.Wait()
	if dropped := o.Flush(); dropped != 0 {
		t.Errorf("%d bytes dropped", dropped)
	}
	next := [4]int{}
	for line := range strings.Lines(got.String()) {
		var i, n int
		var x string
		if k, err := fmt.Sscan(line, &i, &n, &x); k < 2 || (err != nil && n%300 != 0) || n != next[i] || len(x) != n%300 {
			t.Fatalf("line %q after %d of its writer: %v", line, next[i], err)
		}
		next[i]++
	}
	if next != [4]int{5000, 5000, 5000, 5000} {
		t.Errorf("lines by writer: %v", next)
	}
}

// TestWaitsForItsReader checks that nothing is dropped while the job runs, and that
// memory is bounded.
func TestWaitsForItsReader(t *testing.T) {
	r := &reader{tokens: make(chan struct{})}
	o := New(r)
	line := append(bytes.Repeat([]byte("y"), 999), '\n')
	done := make(chan int)
	go func() {
		n := 0
		for range 3 * Capacity / len(line) {
			if _, err := o.Write(line); err == nil {
				n++
			}
		}
		done <- n
	}()
	for range 16 { // a third of it
		r.tokens <- struct{}{}
		o.mu.Lock()
		if n := len(o.queue); n > Capacity {
			t.Errorf("%d bytes queued", n)
		}
		o.mu.Unlock()
		select {
		case <-done:
			t.Fatal("it did not wait for its reader")
		default:
		}
	}
	close(r.tokens)
	n := <-done
	if dropped := o.Flush(); dropped != 0 || len(r.String()) != n*len(line) {
		t.Errorf("%d dropped, %d of %d bytes read", dropped, len(r.String()), n*len(line))
	}
}

// TestEndDoesNotWait checks that waiting writes continue after LimitWait, that unwritten
// bytes are counted, and that no later write waits.
func TestEndDoesNotWait(t *testing.T) {
	_, o := still(t)
	o.stallTimeout = time.Millisecond
	b := make([]byte, Capacity/4)
	done := make(chan struct{})
	const writes = 20
	go func() {
		defer close(done)
		for range writes {
			_, _ = o.Write(b) // counted below
		}
	}()
	o.LimitWait()
	<-done
	dropped := o.Flush()
	// One write is in progress, and has all bytes that were queued when it began: the
	// blocks are one long line.
	if total := int64(writes * len(b)); dropped < total-Capacity || dropped > total {
		t.Errorf("%d of %d bytes dropped", dropped, total)
	}
	o.OfferReserved("verdict\n")
	if o.Flush() != dropped {
		t.Errorf("%d bytes dropped, %d before", o.Flush(), dropped)
	}
}

// TestSlowReaderIsWaitedFor checks that the time-out applies to a reader that accepts
// nothing, and that a slow one gets everything.
func TestSlowReaderIsWaitedFor(t *testing.T) {
	r := &reader{tokens: make(chan struct{})}
	o := New(r)
	o.stallTimeout, o.most = time.Hour, time.Hour
	line := append(bytes.Repeat([]byte("z"), piece-1), '\n')
	for range 8 {
		write(t, o, line)
	}
	o.LimitWait()
	go func() {
		for range 8 {
			r.tokens <- struct{}{}
		}
	}()
	if dropped := o.Flush(); dropped != 0 || len(r.String()) != 8*len(line) {
		t.Errorf("%d dropped, %d read", dropped, len(r.String()))
	}
}

// TestReaderThatNeverEnds checks that a reader that reads a little now and then does not
// delay the end for ever.
func TestReaderThatNeverEnds(t *testing.T) {
	r, o := still(t)
	o.stallTimeout, o.most = time.Hour, 20*time.Millisecond
	line := append(bytes.Repeat([]byte("z"), piece-1), '\n')
	for range 8 {
		write(t, o, line)
	}
	r.tokens <- struct{}{}
	o.LimitWait()
	if dropped := o.Flush(); dropped != int64(6*len(line)) { // one is read, one is being written
		t.Errorf("%d bytes dropped, want %d", dropped, 6*len(line))
	}
}

// TestOfferNeverWaits checks that Offer never waits, and that OfferReserved has room of its
// own behind it.
func TestOfferNeverWaits(t *testing.T) {
	r := &reader{tokens: make(chan struct{})}
	o := New(r)
	line := append(bytes.Repeat([]byte("l"), 1023), '\n')
	for range 2 * Capacity / len(line) {
		write(t, o.NonBlocking(), line)
	}
	o.OfferReserved("verdict\n")
	close(r.tokens)
	dropped := o.Flush()
	if dropped < Capacity/2 || dropped+int64(len(r.String())) != 2*Capacity+8 {
		t.Errorf("%d dropped, %d written", dropped, len(r.String()))
	}
	if !strings.HasSuffix(r.String(), "l\nverdict\n") {
		t.Errorf("the end is %q", r.String()[len(r.String())-20:])
	}
}

// TestResetWait checks that the next job writes again, behind the output in progress.
func TestResetWait(t *testing.T) {
	r := &reader{tokens: make(chan struct{})}
	o := New(r)
	o.stallTimeout = time.Millisecond
	write(t, o, []byte("first\n"))
	o.LimitWait()
	if o.Flush() != 0 {
		t.Error("the write in progress counts as dropped")
	}
	write(t, o, []byte("dropped\n"))
	if o.Flush() != 8 {
		t.Errorf("%d bytes dropped, want 8", o.Flush())
	}
	o.ResetWait()
	write(t, o, []byte("second\n"))
	close(r.tokens)
	if dropped := o.Flush(); dropped != 0 || r.String() != "first\nsecond\n" {
		t.Errorf("%d dropped, %q written", dropped, r.String())
	}
}

// broken is a writer that fails.
type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestErr(t *testing.T) {
	o := New(broken{})
	write(t, o, []byte("a"))
	o.Flush()
	if _, err := o.Write([]byte("b")); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if Wrap(o) != o {
		t.Error("a Writer of a Writer")
	}
}

// TestPair checks that two names of one file share a Writer.
func TestPair(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	plain := func(f *os.File) io.Writer { return f }
	a := open("a")
	if out, err := Pair(a, open("a"), plain); out != err {
		t.Error("one file has two writers")
	}
	if out, err := Pair(a, open("b"), plain); out == err {
		t.Error("two files have one writer")
	}
}

// TestWriteLastTimesOut checks that a last line that is not read does not block.
func TestWriteLastTimesOut(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	WriteLast(w, "verdict\n")
	b := make([]byte, 100)
	if n, err := r.Read(b); err != nil || string(b[:n]) != "verdict\n" {
		t.Errorf("%q, %v", b[:n], err)
	}
	full := make([]byte, 1<<20)
	WriteLast(w, string(full[:reserve])) // the pipe has room for this
	WriteLast(w, string(full[:reserve])) // and for no more
	_ = r.Close()                        // which ends the write
	_ = w.Close()
}
