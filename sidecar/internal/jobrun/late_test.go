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

// These tests are about processes that know the cause of a failure and wait for a CPU
// longer than the job waits for them: a sidecar that answers no request, a launcher, the
// kernel.

// writes returns a script's command that writes a sidecar's final message.
func writes(reason podlife.Reason, rank, code int, text, at string) string {
	m := podlife.Message{Kind: podlife.KindSidecar, Pod: 1, Failures: []podlife.Failure{{Rank: rank, Code: code, Reason: reason, Text: text}}}
	m.Failures[0].Time, _ = time.Parse(time.RFC3339, at)
	return `while [ "$1" != --termination-log ]; do shift; done; printf '%s' '` + string(m.Encode()) + `' > "$2"; `
}

// victim is the report of a launcher of pod 0 about a rank that has failed because of
// another rank.
const victim = `case "$*" in *"--ranks 0-0"*) echo '{"event":"failed","rank":0,"code":1,"time":"2026-01-01T00:00:05Z"}' >&3; exit 1;; esac; `

// TestSidecarTooBusyToAnswer checks that the message that a sidecar has written is read if
// it does not answer.
func TestSidecarTooBusyToAnswer(t *testing.T) {
	abort := writes(podlife.JobAborted, 1, 42, podlife.TextAborted+": no sense", "2026-01-01T00:00:04Z")
	s := set(t, `[ $pod = 1 ] && { `+abort+` }; `+quietSidecar, victim+`trap 'exit 143' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "rank 1 (pod 1) failed: called abort: no sense", 42)
}

// TestSidecarSpeaksAtItsEnd checks that the message of a sidecar that gets no CPU before
// the job ends is read at the end.
func TestSidecarSpeaksAtItsEnd(t *testing.T) {
	abort := writes(podlife.JobAborted, 1, 42, podlife.TextAborted+": no sense", "2026-01-01T00:00:04Z")
	s := set(t, `end() { [ $pod = 1 ] && { `+abort+` }; exit 0; }; trap 'end "$@"' TERM; while :; do sleep 0.01; done`,
		victim+`trap 'exit 143' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "rank 1 (pod 1) failed: called abort: no sense", 42)
}

// TestVictimHeardOfLate: a rank ended before the one that was reported first, and is no
// more the cause than that one.
func TestVictimHeardOfLate(t *testing.T) {
	abort := writes(podlife.JobAborted, 1, 42, podlife.TextAborted+": no sense", "2026-01-01T00:00:03Z")
	s := set(t, `[ $pod = 1 ] && { `+abort+` }; `+quietSidecar, victim+`case "$*" in *"--ranks 2-2"*)
trap 'echo "{\"event\":\"failed\",\"rank\":2,\"code\":1,\"time\":\"2026-01-01T00:00:04Z\"}" >&3; exit 1' TERM;; *) trap 'exit 143' TERM;; esac; while :; do sleep 0.01; done`)
	s.fails(&Spec{Ranks: 3, Pods: 3}, "rank 1 (pod 1) failed: called abort: no sense", 42)
}

// TestLauncherSpeaksAtItsEnd checks that a launcher's report of how a rank ended is used
// when the launcher gets a CPU.
func TestLauncherSpeaksAtItsEnd(t *testing.T) {
	vanished := writes(podlife.RankVanished, 1, 1, podlife.TextVanished, "2026-01-01T00:00:04Z")
	s := set(t, `[ $pod = 1 ] && { `+vanished+` }; `+quietSidecar, victim+`echo '{"event":"started","rank":1,"pid":1}' >&3
trap 'echo "{\"event\":\"failed\",\"rank\":1,\"code\":137,\"signal\":\"SIGKILL\",\"time\":\"2026-01-01T00:00:06Z\"}" >&3; exit 137' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "rank 1 (pod 1) was killed by SIGKILL", 137)
}

// TestSidecarThatTakesLongToEnd: the ranks of a sidecar have noticed its end, and it cannot
// be waited for until long after the end of the job.
func TestSidecarThatTakesLongToEnd(t *testing.T) {
	never := filepath.Join(t.TempDir(), "never") // its end comes after this file, which is never made
	if err := unix.Mkfifo(never, 0o600); err != nil {
		t.Fatal(err)
	}
	s := set(t, fmt.Sprintf(`[ $pod = 1 ] && exec env %s=1 %s <> %s; `, leaderless, os.Args[0], never)+quietSidecar,
		`case "$*" in *"--ranks 1-1"*) sleep 1; echo '{"event":"failed","rank":1,"code":1,"time":"2026-01-01T00:00:05Z"}' >&3; exit 1;; esac
trap 'exit 143' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "the sidecar of pod 1 (rank 1) ended: ", 1)
}

// TestFailureGoesFirst: a process that has waited for a CPU finds the failure of a job, the
// end of its launchers, and the end of its time at once.
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

// TestKilledLauncherIsHeardOfLate checks that the end of a killed launcher is the cause of
// what its sidecar has reported, also if it is noticed while the job is being ended.
func TestKilledLauncherIsHeardOfLate(t *testing.T) {
	vanished := writes(podlife.RankVanished, 1, 1, podlife.TextVanished, "2026-01-01T00:00:04Z")
	s := set(t, `[ $pod = 1 ] && { `+vanished+` }; `+quietSidecar, victim+`echo '{"event":"exited","rank":1,"pid":1}' >&3
trap 'kill -KILL $$' TERM; while :; do sleep 0.01; done`)
	s.fails(&Spec{}, "the launcher of pod 1 ended: killed by SIGKILL", 1)
}
