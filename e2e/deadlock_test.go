package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// TestSuspectedDeadlock: a job whose ranks all wait is told as a suspected deadlock,
// once, and goes on; where that is asked for, it fails.
func TestSuspectedDeadlock(t *testing.T) {
	const suspicion = "outrigger: suspected deadlock: every rank has waited for 1 s or longer, and nothing is under way\n"
	for name, c := range map[string]struct {
		play  string
		flags []string
		code  int
		want  []string
	}{
		"told":  {"ring", []string{"--timeout", "6s"}, 124, []string{suspicion + "outrigger: ranks 0 to 2 wait for each other in a ring", "the job goes on; Ctrl-C ends it", "not finished within 6s"}},
		"fails": {"wrong tag", []string{"--deadlock-fails"}, 124, []string{suspicion, "recv from 0 tag 8; unexpected here: from 0 tag 7, 800 B (a wrong tag?)", "job failed: suspected deadlock: every rank has waited for 1 s"}},
		// Rank 0 computes with a receive open, and goes on.
		"looks up":    {"timed waits", []string{"--deadlock-fails", "--timeout", "6s"}, 124, []string{suspicion, "(in no call that waits for good: it may compute, or look from time to time)", "the job goes on: it was no deadlock", "not finished within 6s"}},
		"may compute": {"long wait", []string{"--deadlock-fails", "--timeout", "6s"}, 124, []string{suspicion, "recv from any rank tag 1 (in no call that waits for good: it may compute, or look from time to time)", "the job goes on: it was no deadlock", "not finished within 6s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := startWith(t, append(c.flags, "--deadlock-after", "1s"), hangs[c.play].ranks, 2, os.Args[0], hangingCommand, c.play).wait()
			if code != c.code || strings.Count(out, suspicion) != 1 {
				t.Errorf("exit code %d, want %d; suspected %d times", code, c.code, strings.Count(out, suspicion))
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("nothing says %q", want)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// TestNoDeadlock: ranks that wait for one that computes are none, nor are those of
// whom the last one goes on; nobody looks with --deadlock-after 0.
func TestNoDeadlock(t *testing.T) {
	for name, c := range map[string]struct {
		play, after string
		want        bool
	}{
		"one computes":   {"missing rank", "500ms", false},
		"nobody looks":   {"ring", "0", false},
		"it was not one": {"long wait", "1s", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, out := startWith(t, []string{"--deadlock-after", c.after, "--timeout", "5s"}, 3, 2, os.Args[0], hangingCommand, c.play).wait()
			if got := strings.Contains(out, "suspected deadlock"); got != c.want {
				t.Errorf("suspected: %v\n%s", got, out)
			}
			if got := strings.Contains(out, "the job goes on: it was no deadlock"); got != c.want {
				t.Errorf("taken back: %v\n%s", got, out)
			}
		})
	}
}

// longWait: every rank has an early receive open while rank 0 computes, and goes on.
func longWait(ctx context.Context, w *outrigger.Comm) error {
	r, err := outrigger.Irecv(w, make([]int64, 1), outrigger.AnySource, 1)
	if err != nil {
		return err
	}
	if w.Rank() != 0 {
		if _, err = r.Wait(ctx); err != nil {
			return err
		}
		select {} // it computes
	}
	<-time.After(2500 * time.Millisecond) // it computes
	for to := range w.Size() {
		if err := outrigger.Send(ctx, w, []int64{7}, to, 1); err != nil {
			return err
		}
	}
	select {} // and computes
}

// timedWaits is a right program: all ranks wait for each other, look up every 20 ms,
// and send after 2.5 s.
func timedWaits(ctx context.Context, w *outrigger.Comm) error {
	r, err := outrigger.Irecv(w, make([]int64, 1), (w.Rank()+1)%w.Size(), 1)
	if err != nil {
		return err
	}
	sent := false
	for begun := time.Now(); ; {
		limited, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, err := r.Wait(limited)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if sent && err == nil {
			select {} // it computes
		}
		if !sent && time.Since(begun) > 2500*time.Millisecond {
			sent = true
			if err := outrigger.Send(ctx, w, []int64{7}, (w.Rank()+w.Size()-1)%w.Size(), 1); err != nil {
				return err
			}
		}
	}
}

// TestInterruptedWait: Ctrl-C at a job in which one rank does something else, while the
// others have waited for it for long, says so.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "job")
	p := spawn(t, nil, "outrigger", "run", "-n", "3", "--dir", dir, "--deadlock-after", "0", "--", os.Args[0], hangingCommand, "missing rank")
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		out, _ := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), "why", dir).CombinedOutput() // there may be no job yet
		if strings.Contains(string(out), "rank 2 waits for no message") && strings.Count(string(out), "barrier in round") > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nobody waits in the barrier: %s", out)
		}
	}
	time.Sleep(6 * time.Second) // they have waited for 5 s
	p.signal(unix.SIGINT)
	p.wait(130)
	for _, want := range []string{"barrier in round", "rank 2 waits for no message: the program computes", "job failed: interrupted"} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if t.Failed() {
		t.Log(p.out.String())
	}
}

// TestInterruptedHang: Ctrl-C at a job that hangs says what its ranks wait for, blames
// none of them, and ends it as shells expect.
func TestInterruptedHang(t *testing.T) {
	t.Parallel()
	p := spawn(t, nil, "outrigger", "run", "-n", "2", "--pods", "2", "--deadlock-after", "2s", "--", os.Args[0], hangingCommand, "head to head")
	p.says("the job goes on; Ctrl-C ends it")
	said := len(p.out.String())
	p.signal(unix.SIGINT)
	p.wait(130)
	after := p.out.String()[said:]
	for _, want := range []string{"ranks 0 and 1 wait for each other", "job failed: interrupted"} {
		if !strings.Contains(after, want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if strings.Contains(after, "without closing its session") {
		t.Error("a rank is blamed that was ended")
	}
	if t.Failed() {
		t.Log(p.out.String())
	}
}
