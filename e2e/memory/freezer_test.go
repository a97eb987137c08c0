//go:build cluster

package memory

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// freezer is a way to freeze a control group: a file of it, and what is written there.
type freezer struct{ root, file, frozen, thawed string }

// freezers returns the freezers of this machine: of version 1, of version 2, or both.
func freezers(t *testing.T) (found []freezer) {
	t.Helper()
	for _, f := range []freezer{
		{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
		{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
		{"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
	} {
		dir := filepath.Join(f.root, fmt.Sprintf("outrigger-freezer-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue // no such hierarchy
		}
		t.Cleanup(func() { removed(dir) })
		if _, err := os.Stat(filepath.Join(dir, f.file)); err != nil {
			continue // a directory that holds hierarchies
		}
		f.root = dir
		found = append(found, f)
	}
	if len(found) == 0 {
		t.Fatal("no control group can be frozen: this test needs root")
	}
	return found
}

// said is what a job has written so far.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// find waits until the job's output has a text.
func (s *said) find(t *testing.T, over <-chan struct{}, what string) {
	t.Helper()
	late := time.After(time.Minute)
	for re := regexp.MustCompile(what); !re.MatchString(s.String()); {
		select {
		case <-over:
		case <-late:
		case <-time.After(10 * time.Millisecond):
			continue
		}
		t.Fatalf("the job has ended, or runs for a minute, and has not said %s\n%s", what, s.String())
	}
}

// TestFrozenRank checks that a rank in a frozen control group, or below one, is reported as
// stopped and makes no deadlock, and continues when the group is thawed.
func TestFrozenRank(t *testing.T) {
	bin := programs(t)
	for _, f := range freezers(t) {
		t.Run(f.file, func(t *testing.T) {
			inner := filepath.Join(f.root, "inner")
			if err := os.Mkdir(inner, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { removed(inner) })
			var out said
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), "run", "-n", "3", "--pods", "2", "--deadlock-after", "500ms", "--deadlock-fails", "--",
				"/bin/sh", "-c", `test "$OUTRIGGER_RANK" != 1 || echo $$ > "$0"/cgroup.procs; exec "$@"`, inner, filepath.Join(bin, "ring"), "-rounds", "2000", "-pause", "1ms")
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			over := make(chan struct{})
			var ended error
			go func() {
				defer close(over)
				ended = cmd.Wait()
			}()
			write := func(text string) {
				if err := os.WriteFile(filepath.Join(f.root, f.file), []byte(text), 0o600); err != nil {
					t.Error(err)
				}
			}
			defer write(f.thawed) // else its processes cannot end
			out.find(t, over, "rank 1 is process")
			write(f.frozen)
			out.find(t, over, `(?s)ranks are stopped, and all others have waited for .*rank 1 is stopped by the freezer of a control group of its process \(/proc/\d+/cgroup\)`)
			write(f.thawed)
			if <-over; ended != nil || !strings.Contains(out.String(), "every byte right") || strings.Contains(out.String(), "suspected deadlock") {
				t.Errorf("%v\n%s", ended, out.String())
			}
		})
	}
}
