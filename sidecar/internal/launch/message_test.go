package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// withLog gives the trial a termination message, and returns a function that reads it.
func (r *trial) withLog(path string) func() *podlife.Message {
	r.t.Helper()
	var err error
	if r.Log, err = podlife.Open(path); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.Log.Close() }) // the test has read it
	r.Pod = 2
	r.before++
	return func() *podlife.Message {
		r.t.Helper()
		m, err := podlife.Read(path)
		if err != nil {
			r.t.Fatal(err)
		}
		return m
	}
}

// TestMessage checks which rank failed first, and the ends of the others.
func TestMessage(t *testing.T) {
	for what, c := range map[string]struct {
		trap, script string
		want         []podlife.Failure // without text and time
	}{
		"all well": {"", "exit 0", nil},
		"exit": {
			"", `[ $OUTRIGGER_RANK = 5 ] && exit 3; while :; do sleep 0.01; done`,
			[]podlife.Failure{{Rank: 5, Code: 3, Reason: podlife.RankExited}, {Rank: 4, Code: 143, Signal: "SIGTERM", Reason: podlife.Terminated}},
		},
		"signal": {
			"trap 'exit 7' TERM; ", `[ $OUTRIGGER_RANK = 5 ] && kill -KILL $$; while :; do sleep 0.01; done`,
			[]podlife.Failure{{Rank: 5, Code: 137, Signal: "SIGKILL", Reason: podlife.RankKilled}, {Rank: 4, Code: 7, Reason: podlife.RankExited}},
		},
	} {
		r := prepare(t, 5, c.trap+waitForBoth(t.TempDir())+c.script)
		read := r.withLog(filepath.Join(t.TempDir(), "log"))
		r.run(t.Context())
		checkWord(t, what, read(), c.want)
	}
}

// waitForBoth makes ranks 4 and 5 continue together, so that neither is ended before it has
// begun.
func waitForBoth(dir string) string {
	return `cd ` + dir + `; : > up.$OUTRIGGER_RANK; while [ "$(echo up.*)" != "up.4 up.5" ]; do sleep 0.01; done; `
}

func checkWord(t *testing.T, what string, m *podlife.Message, want []podlife.Failure) {
	t.Helper()
	if m.Kind != podlife.KindRanks || m.Pod != 2 || len(m.Failures) != len(want) {
		t.Errorf("%s: %+v, want %+v", what, m, want)
		return
	}
	for i, f := range m.Failures {
		if f.Text == "" || f.Time.IsZero() {
			t.Errorf("%s: no words in %+v", what, f)
		}
		f.Text, f.Time = "", want[i].Time
		if f != want[i] {
			t.Errorf("%s: failure %d is %+v, want %+v", what, i, f, want[i])
		}
	}
}

// TestMessageWhenTold checks that a rank that is told to end is not a cause, however it
// ends.
func TestMessageWhenTold(t *testing.T) {
	r := prepare(t, 5, `[ $OUTRIGGER_RANK = 5 ] && trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
	read := r.withLog(filepath.Join(t.TempDir(), "log"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		wait(t, "both ranks", func() bool { return strings.Count(r.out.String(), "ready") == 2 })
		cancel()
	}()
	r.run(ctx)
	m := read()
	if len(m.Failures) != 2 || m.Failures[0].Reason != podlife.Terminated || m.Failures[1].Reason != podlife.Terminated {
		t.Errorf("%+v", m)
	}
}

// TestMessageAtOnce checks that the message is written as soon as a rank has failed, while
// the others are still ending.
func TestMessageAtOnce(t *testing.T) {
	dir := t.TempDir()
	r := prepare(t, 5, `trap '' TERM; `+waitForBoth(dir)+`[ $OUTRIGGER_RANK = 5 ] && exit 3; while [ ! -e go ]; do sleep 0.01; done`)
	r.Grace = timeout
	path := filepath.Join(dir, "log")
	read := r.withLog(path)
	go func() {
		wait(t, "the message", func() bool {
			st, err := os.Stat(path)
			return err == nil && st.Size() > 0
		})
		if m := read(); len(m.Failures) != 1 || m.Failures[0].Rank != 5 {
			t.Errorf("%+v", m)
		}
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}()
	if e := r.run(t.Context()); e == nil || e.Rank != 5 {
		t.Errorf("%+v", e)
	}
}

// TestLogThatCannotBeWritten checks that the job goes on, and that the error is printed.
func TestLogThatCannotBeWritten(t *testing.T) {
	r := prepare(t, 4, "exit 0")
	r.withLog(filepath.Join(t.TempDir(), "log"))
	if err := r.Log.Close(); err != nil {
		t.Fatal(err)
	}
	r.before--
	if e := r.run(t.Context()); e != nil {
		t.Error(e.Text())
	}
	if !strings.Contains(r.errOut.String(), "termination message: ") {
		t.Errorf("standard error %q", r.errOut.String())
	}
}

func TestProgramThatCannotStart(t *testing.T) {
	r := prepare(t, 5, "")
	r.Program = []string{"/no/such/program"}
	read := r.withLog(filepath.Join(t.TempDir(), "log"))
	r.run(t.Context())
	checkWord(t, "no program", read(), []podlife.Failure{{Rank: 4, Code: 127, Reason: podlife.CannotStart}})
}

// TestEndedBeforeItWasTold: a rank has ended, and its goroutine notices that only after the
// pod was told to end, or ends its ranks for another rank's failure. The rank has not
// obeyed.
func TestEndedBeforeItWasTold(t *testing.T) {
	for what, say := range map[string]func(p *pod){
		"the pod is told to end":                 func(p *pod) { p.noteTold() },
		"another rank has failed":                func(p *pod) { p.end(unix.SIGTERM) },
		"another has failed, and did not obey":   func(p *pod) { p.end(unix.SIGTERM); p.end(unix.SIGKILL) },
		"the pod is told when it ends ranks":     func(p *pod) { p.end(unix.SIGTERM); p.noteTold() },
		"another has failed when the pod's told": func(p *pod) { p.noteTold(); p.end(unix.SIGTERM) },
	} {
		for script, want := range map[string]podlife.Reason{
			"exit 3": podlife.RankExited, "kill -TERM $$": podlife.RankKilled, "kill -KILL $$": podlife.RankKilled,
		} {
			r := prepare(t, 4, script)
			p := newPod(r.Config)
			p.cfg.killGroup = killGroup
			p.cfg.awaited = func() { say(p) }
			p.run(t.Context(), t.Context(), 4, "/bin/sh")
			p.copies.Wait()
			if got := p.first.Failure().Reason; got != want {
				t.Errorf("%s, and a rank had ended with %s: %s, want %s", what, script, got, want)
			}
		}
	}
}

// TestMessageOfAGoodEnd checks that the termination message of ranks that have all ended with
// code 0 has what their sidecar knows of the job, and no outcome if it gives no answer.
func TestMessageOfAGoodEnd(t *testing.T) {
	silent := errors.New("no answer")
	for what, c := range map[string]struct {
		script string
		failed func(context.Context) (bool, error)
		want   podlife.Outcome
	}{
		"in order":              {"exit 0", func(context.Context) (bool, error) { return false, nil }, podlife.OutcomeClosed},
		"the job has failed":    {"exit 0", func(context.Context) (bool, error) { return true, nil }, podlife.OutcomeFailed},
		"no answer":             {"exit 0", func(context.Context) (bool, error) { return false, silent }, ""},
		"no answer before long": {"exit 0", func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }, ""},
		"no sidecar":            {"exit 0", nil, ""},
		"a rank has failed":     {"[ $OUTRIGGER_RANK = 4 ]", func(context.Context) (bool, error) { return false, nil }, ""},
	} {
		r := prepare(t, 5, c.script)
		r.JobFailed = c.failed
		read := r.withLog(filepath.Join(t.TempDir(), "log"))
		r.run(t.Context())
		if m := read(); m.Outcome != c.want {
			t.Errorf("%s: outcome %q, want %q", what, m.Outcome, c.want)
		}
	}
}

// TestUnable checks that a pod whose ranks cannot be started reports the reason in each
// output.
func TestUnable(t *testing.T) {
	r := prepare(t, 5, "exit 0")
	r.Unable = errors.New("no input deck")
	told := 0
	r.Failed = func(rank, code int) { told = 1000*rank + code }
	read := r.withLog(filepath.Join(t.TempDir(), "log"))
	r.run(t.Context())
	m := read()
	if told != 4001 || len(m.Failures) != 1 || m.Failures[0].Rank != 4 || m.Failures[0].Reason != podlife.CannotStart || m.Failures[0].Text != "could not be started: no input deck" {
		t.Errorf("told %d, left %+v", told, m)
	}
	if r.count("started") != 0 || r.count("failed") != 1 {
		t.Errorf("status\n%s", r.status.String())
	}
}
