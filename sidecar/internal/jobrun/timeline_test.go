package jobrun

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTraceIsWhole checks that a disk that becomes full during the write of a trace leaves
// the previous file, and an error, and no other file.
func TestTraceIsWhole(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.json")
	if err := os.WriteFile(old, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	full := func(w io.Writer) error {
		_, err := w.Write(long)
		return errors.Join(err, unix.ENOSPC)
	}
	for _, path := range []string{old, filepath.Join(dir, "new.json")} {
		if err := replace(path, full); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "{}" { //nolint:gosec // the test's own
		t.Errorf("the file that was there holds %d bytes, %v", len(b), err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("left: %v, %v", list, err)
	}
	good := func(w io.Writer) error {
		_, err := w.Write(long)
		return err
	}
	for path, want := range map[string]error{old: nil, filepath.Join(dir, "new.json"): nil, os.DevNull: nil, "/dev/full": unix.ENOSPC} {
		if err := replace(path, good); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if b, err := os.ReadFile(old); err != nil || !bytes.Equal(b, long) { //nolint:gosec // the test's own
		t.Errorf("the new file holds %d bytes, %v", len(b), err)
	}
}

// TestAnswerThatTakesLong checks that an answer of a busy sidecar is waited for as long as
// bytes of it arrive, and that a request to a silent one fails with a reason.
func TestAnswerThatTakesLong(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/silent" {
			<-r.Context().Done()
			return
		}
		for _, piece := range []string{"[1", ",2", ",3]"} { // together longer than answerSilence
			time.Sleep(answerSilence * 2 / 5)
			_, _ = io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		}
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var got []int
	if err := fetch(t.Context(), socket, "/trace", &got); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v", got, err)
	}
	if err := fetch(t.Context(), socket, "/silent", &got); !errors.Is(err, errNoAnswer) {
		t.Errorf("of silence: %v", err)
	}
	if err := errors.Join(server.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// TestTraceIntoPipe checks that a late reader gets the whole trace, and that a reader that
// does not come, or stops reading, does not block the job for ever.
func TestTraceIntoPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), 1<<14) // more than a pipe holds
	write := func(w io.Writer) error {
		_, err := w.Write(long)
		return err
	}
	if err := feed(path, 50*time.Millisecond, write); !errors.Is(err, errNoReader) {
		t.Errorf("without a reader: %v", err)
	}
	fed := make(chan error)
	go func() { fed <- replace(path, write) }()
	b, err := os.ReadFile(path) //nolint:gosec // the test's own
	if err = errors.Join(err, <-fed); err != nil || !bytes.Equal(b, long) {
		t.Errorf("%d bytes of %d, %v", len(b), len(long), err)
	}
	go func() { fed <- feed(path, 50*time.Millisecond, write) }()
	f, err := os.Open(path) //nolint:gosec // the test's own
	if err != nil {
		t.Fatal(err)
	}
	if err := <-fed; !errors.Is(err, errNoReader) { // nothing was read
		t.Errorf("with a reader that reads nothing: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCheckTrace(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.json")
	if err := os.WriteFile(old, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, good := range map[string]bool{
		"": true, old: true, filepath.Join(dir, "new.json"): true, os.DevNull: true,
		dir: false, filepath.Join(dir, "none", "new.json"): false,
	} {
		if err := (&Spec{Trace: path}).checkTrace(); (err == nil) != good {
			t.Errorf("%q: error %v, want none: %v", path, err, good)
		}
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "{}" { //nolint:gosec // the test's own
		t.Errorf("the file that was there holds %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.json")); err == nil {
		t.Error("an empty file is left")
	}
}
