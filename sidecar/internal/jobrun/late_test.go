package jobrun

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// Who knows the cause of a failure may wait for a processor for longer than the job waits
// for it: a sidecar that answers no question, a launcher, the kernel.

// writes is a script's command that leaves a sidecar's last words.
func writes(reason podlife.Reason, rank, code int, text, at string) string {
	m := podlife.Message{Kind: podlife.KindSidecar, Pod: 1, Failures: []podlife.Failure{{Rank: rank, Code: code, Reason: reason, Text: text}}}
	m.Failures[0].Time, _ = time.Parse(time.RFC3339, at)
	return `while [ "$1" != --termination-log ]; do shift; done; printf '%s' '` + string(m.Encode()) + `' > "$2"; `
}

// victim is what a launcher of pod 0 tells of a rank that has failed because of another.
const victim = `case "$*" in *"--ranks 0-0"*) echo '{"event":"failed","rank":0,"code":1,"time":"2026-01-01T00:00:05Z"}' >&3; exit 1;; esac; `

// TestSidecarTooBusyToAnswer: what it has written down is known all the same.
func TestSidecarTooBusyToAnswer(t *testing.T) {
	abort := writes(podlife.JobAborted, 1, 42, podlife.TextAborted+": no sense", "2026-01-01T00:00:04Z")
	s := set(t, `[ $pod = 1 ] && { `+abort+` }; `+quietSidecar, victim+`trap 'exit 143' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "rank 1 (pod 1) failed: called abort: no sense", 42)
}

// TestSidecarSpeaksAtItsEnd: one that gets no processor before the job ends says why then.
func TestSidecarSpeaksAtItsEnd(t *testing.T) {
	abort := writes(podlife.JobAborted, 1, 42, podlife.TextAborted+": no sense", "2026-01-01T00:00:04Z")
	s := set(t, `end() { [ $pod = 1 ] && { `+abort+` }; exit 0; }; trap 'end "$@"' TERM; while :; do sleep 0.01; done`,
		victim+`trap 'exit 143' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "rank 1 (pod 1) failed: called abort: no sense", 42)
}

// TestVictimHeardOfLate: it has ended before the one that was heard of first, and is no
// more the cause than that one.
func TestVictimHeardOfLate(t *testing.T) {
	abort := writes(podlife.JobAborted, 1, 42, podlife.TextAborted+": no sense", "2026-01-01T00:00:03Z")
	s := set(t, `[ $pod = 1 ] && { `+abort+` }; `+quietSidecar, victim+`case "$*" in *"--ranks 2-2"*)
trap 'echo "{\"event\":\"failed\",\"rank\":2,\"code\":1,\"time\":\"2026-01-01T00:00:04Z\"}" >&3; exit 1' TERM;; *) trap 'exit 143' TERM;; esac; while :; do sleep 0.01; done`)
	s.fails(&Spec{Ranks: 3, Pods: 3}, "rank 1 (pod 1) failed: called abort: no sense", 42)
}

// TestLauncherSpeaksAtItsEnd: how a rank ended comes from its launcher, when that gets a
// processor.
func TestLauncherSpeaksAtItsEnd(t *testing.T) {
	vanished := writes(podlife.RankVanished, 1, 1, podlife.TextVanished, "2026-01-01T00:00:04Z")
	s := set(t, `[ $pod = 1 ] && { `+vanished+` }; `+quietSidecar, victim+`echo '{"event":"started","rank":1,"pid":1}' >&3
trap 'echo "{\"event\":\"failed\",\"rank\":1,\"code\":137,\"signal\":\"SIGKILL\",\"time\":\"2026-01-01T00:00:06Z\"}" >&3; exit 137' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "rank 1 (pod 1) was killed by SIGKILL", 137)
}

// TestSidecarThatTakesLongToEnd: its ranks have noticed that it ends, and nobody can wait
// for it before the job has long been over.
func TestSidecarThatTakesLongToEnd(t *testing.T) {
	never := filepath.Join(t.TempDir(), "never") // comes its end
	if err := unix.Mkfifo(never, 0o600); err != nil {
		t.Fatal(err)
	}
	s := set(t, fmt.Sprintf(`[ $pod = 1 ] && exec env %s=1 %s <> %s; `, leaderless, os.Args[0], never)+quietSidecar,
		`case "$*" in *"--ranks 1-1"*) sleep 1; echo '{"event":"failed","rank":1,"code":1,"time":"2026-01-01T00:00:05Z"}' >&3; exit 1;; esac
trap 'exit 143' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "the sidecar of pod 1 (rank 1) ended: ", 1)
}

// TestFailureGoesFirst: a process that has waited for a processor finds the failure of a
// job, the end of its launchers, and that of its time, all at once.
func TestFailureGoesFirst(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for range 64 {
		ctx, cancel := context.WithCancel(t.Context())
		j := &Job{allEnded: make(chan struct{}), failed: make(chan struct{})}
		cancel()
		if got := j.outcome(ctx); got != interrupted {
			t.Fatalf("interrupted: outcome %d", got)
		}
		j.allEnded = closed
		if got := j.outcome(ctx); got != endedWell {
			t.Fatalf("interrupted when all had ended: outcome %d", got)
		}
		j.failed, j.first = closed, &Failure{Text: "a rank failed"}
		if got := j.outcome(ctx); got != hasFailed {
			t.Fatalf("failed: outcome %d", got)
		}
	}
}

// TestKilledLauncherIsHeardOfLate: its end is the cause of what its sidecar has seen,
// also if it is heard of when the job is being ended.
func TestKilledLauncherIsHeardOfLate(t *testing.T) {
	vanished := writes(podlife.RankVanished, 1, 1, podlife.TextVanished, "2026-01-01T00:00:04Z")
	s := set(t, `[ $pod = 1 ] && { `+vanished+` }; `+quietSidecar, victim+`echo '{"event":"exited","rank":1,"pid":1}' >&3
trap 'kill -KILL $$' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "the launcher of pod 1 ended: killed by SIGKILL", 1)
}
