package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// TestSuspectedDeadlock checks that a job whose ranks all wait is reported once as a suspected
// deadlock and continues, and that it fails with --deadlock-fails.
func TestSuspectedDeadlock(t *testing.T) {
	const suspicion = "outrigger: suspected deadlock: every rank has waited for 1 s or longer, and nothing is under way\n"
	for name, c := range map[string]struct {
		play  string
		flags []string
		code  int
		want  []string
	}{
		"told":          {"ring", []string{"--timeout", "8s"}, 124, []string{suspicion + "outrigger: ranks 0 to 2 wait for each other in a ring", "the job goes on; Ctrl-C ends it", "not finished within 8s"}},
		"fails":         {"wrong tag", []string{"--deadlock-fails"}, 124, []string{suspicion, "recv from 0 tag 8; unexpected here: from 0 tag 7, 800 B (a wrong tag?)", "job failed: suspected deadlock: every rank has waited for 1 s"}},
		"communicators": {"wrong comm", []string{"--deadlock-fails"}, 124, []string{"outrigger: suspected deadlock: ", "ranks 0 and 2 wait for each other: 0 in barrier for rank 2 in communicator 1, 2 in barrier", "(in different communicators)", "job failed: suspected deadlock"}},
		// A rank may also wait by polling.
		"polls": {"ring" + polling, []string{"--deadlock-fails"}, 124, []string{suspicion, "ranks 0 to 2 wait for each other in a ring", "job failed: suspected deadlock"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := startWith(t, append(c.flags, "--deadlock-after", "1s"), hangs[strings.TrimSuffix(c.play, polling)].ranks, 2, os.Args[0], hangingCommand, c.play).wait()
			// Two of the ranks with wrong communicators wait for each other alone, and may be seen first.
			if n := strings.Count(out, "outrigger: suspected deadlock: "); code != c.code || n != 1 {
				t.Errorf("exit code %d, want %d; suspected %d times", code, c.code, n)
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

// TestSomeDeadlock checks that ranks that wait for each other are reported, while another rank of
// the job computes.
func TestSomeDeadlock(t *testing.T) {
	t.Parallel()
	const suspicion = "outrigger: suspected deadlock: ranks 0 and 1 have waited for each other for 1 s or longer, and nothing is under way for them; other ranks go on\n"
	for _, play := range []string{"two of three", "two of three" + polling} {
		code, out := startWith(t, []string{"--deadlock-fails", "--deadlock-after", "1s"}, 3, 2, os.Args[0], hangingCommand, play).wait()
		if code != 124 || strings.Count(out, suspicion) != 1 || !strings.Contains(out, "outrigger: ranks 0 and 1 wait for each other: 0 in recv from 1 tag 3") || !strings.Contains(out, "job failed: suspected deadlock: ranks 0 and 1") {
			t.Errorf("%s: exit code %d\n%s", play, code, out)
		}
	}
}

// TestDeadlockAmongBusyRanks checks that ranks that wait for each other are reported while the other
// ranks of their pods exchange messages without a pause.
func TestDeadlockAmongBusyRanks(t *testing.T) {
	t.Parallel()
	code, out := startWith(t, []string{"--deadlock-fails", "--deadlock-after", "1s"}, 4, 2, os.Args[0], hangingCommand, busyName).wait()
	if code != 124 || !strings.Contains(out, "job failed: suspected deadlock: ranks 0 and 2 have waited for each other for 1 s or longer") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestNoDeadlock checks that no deadlock is reported of ranks that wait for a rank that
// computes, of ranks that compute with open receives, of waits with a time limit, and with
// --deadlock-after 0.
func TestNoDeadlock(t *testing.T) {
	for name, c := range map[string]struct{ play, after string }{
		"one computes": {"missing rank", "500ms"},
		"no look":      {"ring", "0"},
		"all compute":  {"long wait", "1s"},
		"timed waits":  {"timed waits", "1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, out := startWith(t, []string{"--deadlock-after", c.after, "--timeout", "5s"}, 3, 2, os.Args[0], hangingCommand, c.play).wait()
			if strings.Contains(out, "suspected deadlock") {
				t.Errorf("a deadlock is suspected\n%s", out)
			}
		})
	}
}

// rightPrograms are right programs that run for longer than the time of a deadlock. A rank
// that the test stops prints its process ID.
var rightPrograms = map[string]func(context.Context, *outrigger.Comm) error{
	"rank pauses": func(ctx context.Context, w *outrigger.Comm) error {
		if w.Rank() == 1 {
			time.Sleep(rightFor)
		}
		return w.Barrier(ctx)
	},
	"all pause with receives open": func(ctx context.Context, w *outrigger.Comm) error {
		return exchangeAfter(ctx, w, func(outrigger.Request) error { time.Sleep(rightFor); return nil })
	},
	"all compute with receives open": func(ctx context.Context, w *outrigger.Comm) error {
		return exchangeAfter(ctx, w, func(outrigger.Request) error { compute(); return nil })
	},
	"all test and compute": func(ctx context.Context, w *outrigger.Comm) error {
		return exchangeAfter(ctx, w, func(r outrigger.Request) error {
			for begun := time.Now(); time.Since(begun) < rightFor; {
				if _, _, err := r.Test(); err != nil {
					return err
				}
			}
			return nil
		})
	},
	"waits long": func(ctx context.Context, w *outrigger.Comm) error {
		for range 3 {
			if w.Rank() == 2 {
				compute()
			}
			if err := outrigger.AllreduceInPlace(ctx, w, []int64{1}, outrigger.Sum); err != nil {
				return err
			}
		}
		return nil
	},
	"collective behind computing": func(ctx context.Context, w *outrigger.Comm) error {
		r, err := w.Ibarrier()
		if err != nil {
			return err
		}
		compute()
		_, err = r.Wait(ctx)
		return err
	},
	"rank is stopped": stoppedFor,
}

// rightFor is how long they run; rightAfter is the time after which a deadlock is suspected.
const (
	rightFor   = 2500 * time.Millisecond
	rightAfter = "500ms"
)

// polling is the suffix of the name of a program whose ranks wait only by polling.
const polling = ", polling"

// waitOf splits a name into the program and its kind of wait.
func waitOf(name string) (program, wait string) {
	program, polls := strings.CutSuffix(name, polling)
	if polls {
		wait = "poll"
	}
	return program, wait
}

func compute() {
	for begun := time.Now(); time.Since(begun) < rightFor; {
	}
}

// exchangeAfter posts a receive, calls a function that takes long, and sends the messages that
// other ranks receive.
func exchangeAfter(ctx context.Context, w *outrigger.Comm, something func(outrigger.Request) error) error {
	n := w.Size()
	r, err := outrigger.Irecv(w, make([]int64, 1), (w.Rank()+1)%n, 1)
	if err != nil {
		return err
	}
	if err := something(r); err != nil {
		return err
	}
	if err := outrigger.Send(ctx, w, []int64{7}, (w.Rank()+n-1)%n, 1); err != nil {
		return err
	}
	_, err = r.Wait(ctx)
	return err
}

// stoppedFor: ranks pass a token; rank 1 is stopped while all ranks wait for its token.
func stoppedFor(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 1 {
		_, _ = fmt.Fprintln(os.Stdout, "stop", os.Getpid())
	}
	for range 500 {
		if w.Rank() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if err := w.Barrier(ctx); err != nil {
			return err
		}
	}
	return nil
}

func right(name string) int {
	ctx := context.Background()
	name, wait := waitOf(name)
	s, err := outrigger.Open(ctx, outrigger.Config{Wait: wait})
	if err == nil {
		program := rightPrograms[name]
		if name == lastStopped {
			program = stopsItself
		}
		err = errors.Join(program(ctx, s.World()), s.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestRightProgramsAreNoDeadlock checks that --deadlock-fails ends none of the right programs,
// and that a stopped rank is reported.
func TestRightProgramsAreNoDeadlock(t *testing.T) {
	t.Parallel()
	for name := range rightPrograms {
		for _, how := range []string{"", polling} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				j := startWith(t, []string{"--deadlock-after", rightAfter, "--deadlock-fails"}, 3, 2, os.Args[0], rightCommand, name+how)
				if strings.Contains(name, "stopped") {
					pid := number(t, j.waitFor(`stop (\d+)`)[1])
					time.Sleep(300 * time.Millisecond) // somewhere in the middle
					if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
						t.Fatal(err)
					}
					j.waitFor(fmt.Sprintf("rank 1 is stopped by a signal .*`kill -CONT %d`", pid))
					if err := unix.Kill(pid, unix.SIGCONT); err != nil {
						t.Fatal(err)
					}
				}
				code, out := j.wait()
				if code != 0 || strings.Contains(out, "suspected deadlock") {
					t.Errorf("exit code %d\n%s", code, out)
				}
			})
		}
	}
}

// TestStoppedWhenOthersHaveLeft: a rank is stopped after the other ranks have left the job.
// The stopped rank is reported after the time of a deadlock, and not before.
func TestStoppedWhenOthersHaveLeft(t *testing.T) {
	t.Parallel()
	p := spawn(t, nil, "outrigger", "run", "-n", "3", "--pods", "2", "--deadlock-after", "4s", "--", os.Args[0], rightCommand, lastStopped)
	p.says("stop ")
	begun := time.Now()
	p.says("outrigger: ranks are stopped, and all others have left the job\noutrigger: rank 1 is stopped by a signal")
	if took := time.Since(begun); took < 4*time.Second {
		t.Errorf("told %v after the stop, want 4 s at least", took)
	}
	said := p.out.String()
	if strings.Contains(said, "have waited") {
		t.Errorf("ranks that have left have waited\n%s", said)
	}
	if err := unix.Kill(number(t, strings.Fields(said[strings.Index(said, "stop "):])[1]), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.wait(0)
}

// lastStopped has rank 1 stop itself before it closes its session, which the others do at once.
const lastStopped = "rank stops itself, and others leave"

func stopsItself(_ context.Context, w *outrigger.Comm) error {
	if w.Rank() != 1 {
		return nil
	}
	_, _ = fmt.Fprintln(os.Stdout, "stop", os.Getpid())
	err := unix.Kill(os.Getpid(), unix.SIGSTOP)
	time.Sleep(time.Second) // another thread may take the signal, and later
	return err
}

// longWait: every rank has a receive open while rank 0 computes, and then continues.
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

// TestInterruptedWait checks that Ctrl-C prints which ranks have waited for long for a rank
// that computes.
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
			t.Fatalf("no rank waits in the barrier: %s", out)
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

// TestInterruptedHang checks that Ctrl-C in a job that hangs prints what its ranks wait for,
// names none of them as the cause, and ends the job with the exit code that shells expect.
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
