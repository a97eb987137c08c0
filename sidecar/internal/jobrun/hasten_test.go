package jobrun

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deafLauncher fails, and ends when the file $there exists; at its second SIGTERM it makes
// the file "twice".
const deafLauncher = `n=0; trap 'n=$((n+1)); [ $n -ge 2 ] && { : >"$at/twice"; exit 1; }' TERM; : >"$at/ready"
echo '{"event":"failed","rank":0,"code":3,"time":"2026-01-02T03:04:05Z"}' >&3
while [ ! -e "$at/there" ]; do sleep 0.01; done; exit 1`

// hearing calls heard once, when text is written.
type hearing struct {
	mu    sync.Mutex
	all   strings.Builder
	text  string
	heard func()
}

func (h *hearing) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all.Write(b)
	if h.heard != nil && strings.Contains(h.all.String(), h.text) {
		h.heard()
		h.heard = nil
	}
	return len(b), nil
}

// TestCauseIsNamedBeforeTheKill checks that the cause is printed before ranks that ignore
// SIGTERM are killed, and that they are killed at once if that is requested then.
func TestCauseIsNamedBeforeTheKill(t *testing.T) {
	for what, kills := range map[string]bool{"grace": false, "at once": true} {
		t.Run(what, func(t *testing.T) {
			s := set(t, quietSidecar, deafLauncher)
			at := t.TempDir()
			t.Setenv("at", at)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := &hearing{text: "outrigger: the job ends: rank 0 (pod 0) exited with code 3; ranks that have not ended are killed 2 s after SIGTERM, by Ctrl-C at once\n"}
			h.heard = func() {
				if kills {
					cancel()
				} else if err := os.WriteFile(filepath.Join(at, "there"), nil, 0o600); err != nil {
					t.Error(err)
				}
			}
			var err error
			if s.job, err = Start(ctx, &Spec{Ranks: 1, Pods: 1, Program: []string{"/bin/true"}}, &s.out, h); err == nil {
				err = s.job.Wait(ctx, nil)
			}
			if err == nil || !strings.Contains(err.Error(), "rank 0 (pod 0) exited with code 3") {
				t.Errorf("it ended with %v", err)
			}
			if h.heard != nil {
				t.Errorf("the cause was not named first: %q", h.all.String())
			}
			if _, err := os.Stat(filepath.Join(at, "twice")); (err == nil) != kills {
				t.Errorf("the end of the grace: %v", err)
			}
			s.left()
		})
	}
}

// savingLauncher ends when the ranks of a failed job would have been killed, and saves its
// state first; at its second SIGTERM it does not save.
const savingLauncher = `trap 'n=$((n+1)); [ $n -ge 2 ] && exit 1' TERM; n=0; : >"$at/ready"
while [ $n -lt 1 ]; do sleep 0.01; done; sleep 2.5 & while kill -0 $! 2>/dev/null; do sleep 0.01; done; : >"$at/saved"; exit 143`

// TestGraceOfAPerson checks that ranks of a job that a person ends may go on for the
// configured grace.
func TestGraceOfAPerson(t *testing.T) {
	for grace, saves := range map[time.Duration]bool{time.Hour: true, time.Millisecond: false} {
		s := set(t, quietSidecar, savingLauncher)
		at := t.TempDir()
		t.Setenv("at", at)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var err error
		if s.job, err = Start(ctx, &Spec{Ranks: 1, Pods: 1, Program: []string{"/bin/true"}, Grace: grace}, &s.out, &s.errOut); err != nil {
			t.Fatal(err)
		}
		for _, err := os.Stat(filepath.Join(at, "ready")); err != nil; _, err = os.Stat(filepath.Join(at, "ready")) {
			time.Sleep(time.Millisecond)
		}
		cancel()
		if err := s.job.Wait(ctx, nil); err == nil || err.Error() != "interrupted" {
			t.Errorf("it ended with %v", err)
		}
		if _, err := os.Stat(filepath.Join(at, "saved")); (err == nil) != saves {
			t.Errorf("grace %v, saved: %v", grace, err)
		}
		s.left()
	}
}

// TestSecondWishKills checks that the first signal ends the job in order, and the second
// one kills the ranks.
func TestSecondWishKills(t *testing.T) {
	s := set(t, quietSidecar, strings.Replace(deafLauncher, "echo '{", ": '{", 1))
	at := t.TempDir()
	t.Setenv("at", at)
	now := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	h := &hearing{text: "outrigger: the job ends: interrupted", heard: func() { close(now) }}
	var err error
	if s.job, err = Start(ctx, &Spec{Ranks: 1, Pods: 1, Program: []string{"/bin/true"}, AtOnce: now}, &s.out, h); err != nil {
		t.Fatal(err)
	}
	for _, err := os.Stat(filepath.Join(at, "ready")); err != nil; _, err = os.Stat(filepath.Join(at, "ready")) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := s.job.Wait(ctx, nil); err == nil || err.Error() != "interrupted" {
		t.Errorf("it ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(at, "twice")); err != nil {
		t.Errorf("the end of the grace: %v", err)
	}
	s.left()
}

// TestNoticeBeforeTheReport checks that a signal reaches a rank whose start the launcher
// reports after the signal has come, and not a rank that is started afterwards.
func TestNoticeBeforeTheReport(t *testing.T) {
	for what, c := range map[string]struct {
		started time.Time
		want    bool
	}{
		"started before": {time.Now().Add(-time.Minute), true},
		"started later":  {time.Now().Add(time.Minute), false},
	} {
		t.Run(what, func(t *testing.T) {
			s := set(t, quietSidecar, fmt.Sprintf(`trap ': >"$at/got"' USR1; : >"$at/ready"; while [ ! -e "$at/sent" ]; do sleep 0.01; done
echo '{"event":"started","rank":0,"pid":1,"time":"%s"}' >&3; for i in 1 2 3 4 5 6 7 8 9 10; do [ -e "$at/got" ] || sleep 0.05; done
echo '{"event":"exited","rank":0}' >&3`, c.started.Format(time.RFC3339Nano)))
			at := t.TempDir()
			t.Setenv("at", at)
			notices := make(chan os.Signal)
			go func() {
				awaitFile(filepath.Join(at, "ready"))
				notices <- unix.SIGUSR1
				time.Sleep(50 * time.Millisecond)                       // the signal must not come before its time of arrival is noted
				_ = os.WriteFile(filepath.Join(at, "sent"), nil, 0o600) // otherwise the job does not end
			}()
			if err := s.run(t.Context(), &Spec{Ranks: 1, Pods: 1, Notices: notices}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(at, "got")); (err == nil) != c.want {
				t.Errorf("the launcher got the signal: %v, want %v", err == nil, c.want)
			}
		})
	}
}

// awaitFile waits until a file exists.
func awaitFile(path string) {
	for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
		time.Sleep(time.Millisecond)
	}
}
