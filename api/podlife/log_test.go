package podlife

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestLog: the file has a whole message at all times, even if the next one is shorter.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("what an earlier container left: "+strings.Repeat("x", 900)), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"short", strings.Repeat("long", 200), "", "again"} {
		m := &Message{Kind: KindRanks, Failures: []Failure{{Rank: 1, Code: 1, Reason: RankExited, Text: text, Time: at(0).UTC()}}}
		if err := l.Write(m); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if diff := cmp.Diff(m, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Write(&Message{}); err == nil {
		t.Error("a closed log was written")
	}
}

// TestCreate: an existing file is not changed.
func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "once")
	m := &Message{Kind: KindSidecar, Pod: 3}
	l, err := Create(path, m)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the message was written
	if _, err := Create(path, &Message{Kind: KindRanks}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made twice: %v", err)
	}
	if got, err := Read(path); err != nil || got.Pod != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestNoLog: a program without a file for its message works in the same way.
func TestNoLog(t *testing.T) {
	l, err := Open("")
	if err := errors.Join(err, l.Write(&Message{}), l.Close()); err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "no", "log")
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a path that cannot be: %v", err)
	}
}

// TestReadWhatIsNoFile: Read returns for anything that an application puts at the path.
func TestReadWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe, link, zeros := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "zeros")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink("/etc/passwd", link), os.WriteFile(zeros, make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, zeros, dir, filepath.Join(dir, "none"), "/dev/zero"} {
		if m, err := Read(path); err == nil {
			t.Errorf("%s: %+v", path, m)
		}
	}
}
