package jobrun

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// TestCause checks that the reports of launchers, of sidecars, and the ends of sidecars are
// combined. podlife tests the choice of the cause.
func TestCause(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	exit := func(rank, code, s int) launch.Event {
		return launch.Event{Event: "failed", Rank: rank, Code: code, Time: at(s)}
	}
	for what, c := range map[string]struct {
		exits  []launch.Event
		seen   *obs.Failure // by the sidecar of pod 0
		daemon *podlife.Ending
		gone   bool // when the exits were reported
		text   string
		code   int
	}{
		"victims exit first": {
			[]launch.Event{exit(0, 1, 5), exit(2, 1, 6)},
			&obs.Failure{Rank: 3, Code: 1, Reason: "expelled: it lied", Time: at(4)}, nil, false,
			"rank 3 (pod 1) failed: expelled: it lied", 1,
		},
		"abort with a code": {
			[]launch.Event{exit(3, 1, 5), exit(0, 1, 6)},
			&obs.Failure{Rank: 3, Code: 42, Reason: "called abort: no sense", Time: at(4)}, nil, false,
			"rank 3 (pod 1) failed: called abort: no sense", 42,
		},
		"a process that ended": {
			[]launch.Event{exit(0, 1, 5), exit(3, 137, 6)},
			&obs.Failure{Rank: 3, Code: 1, Reason: podlife.TextVanished, Time: at(4)}, nil, false,
			"rank 3 (pod 1) exited with code 137", 137,
		},
		"a consequence": {
			[]launch.Event{exit(0, 9, 3)},
			&obs.Failure{Rank: 3, Code: 1, Reason: podlife.TextVanished, Time: at(4)}, nil, false,
			"rank 0 (pod 0) exited with code 9", 9,
		},
		"a sidecar ended": {
			[]launch.Event{exit(0, 1, 6), exit(2, 1, 5)},
			&obs.Failure{Rank: 2, Code: 1, Reason: podlife.TextLost + "1", Time: at(5)},
			&podlife.Ending{Code: 137, Text: "the sidecar of pod 1 ended", Time: at(4)}, false, "the sidecar of pod 1 ended", 1,
		},
		"a sidecar's end that was noticed late": {
			[]launch.Event{exit(3, 1, 5), exit(2, 1, 6)},
			nil,
			&podlife.Ending{Code: 137, Text: "the sidecar of pod 1 ended", Time: at(7)}, true, "the sidecar of pod 1 ended", 1,
		},
		"a sidecar that ended after its ranks": {
			[]launch.Event{exit(3, 4, 5)},
			nil,
			&podlife.Ending{Code: 137, Text: "the sidecar of pod 1 ended", Time: at(7)}, false, "rank 3 (pod 1) exited with code 4", 4,
		},
		"something else": {nil, nil, nil, false, "something", 124},
	} {
		j := &Job{first: &Failure{Text: "something", Code: 124}, reports: []podlife.Report{
			{Ranks: 2}, {Pod: 1, FirstRank: 2, Ranks: 2, Daemon: c.daemon},
		}, gone: make([]time.Time, 2)}
		for _, e := range c.exits {
			j.recordFailure(e.Rank/2, e.Failure(), c.gone)
		}
		agreed := map[int]*podlife.Message{}
		if c.seen != nil {
			agreed[0] = &podlife.Message{Kind: podlife.KindSidecar, Failures: []podlife.Failure{c.seen.Words()}}
		}
		j.blame(agreed)
		if j.first.Text != c.text || j.first.Code != c.code {
			t.Errorf("%s: %q with code %d, want %q with code %d", what, j.first.Text, j.first.Code, c.text, c.code)
		}
	}
}

// TestHasEnded checks that a child has ended before it is waited for, and after that.
func TestHasEnded(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if hasEnded(cmd.Process.Pid) {
		t.Error("a process that waits for its input has ended")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for !hasEnded(cmd.Process.Pid) { // loops for ever if the end is not noticed
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !hasEnded(cmd.Process.Pid) {
		t.Error("a process that was waited for has not ended")
	}
}

// leaderless is set if this program is to be a process whose first thread has ended and
// whose others have not: the rest of its end takes as long as its input.
const leaderless = "JOBRUN_TEST_LEADERLESS"

func init() {
	if os.Getenv(leaderless) == "" {
		return
	}
	runtime.LockOSThread() // the first thread: init runs on it
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0) // ends the thread
}

// TestHasEndedWhileEnding checks that a process whose sockets may be closed, and which
// cannot be waited for yet, has ended.
func TestHasEndedWhileEnding(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leaderless+"=1")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	for !hasEnded(cmd.Process.Pid) { // loops for ever if the end is not noticed
		time.Sleep(time.Millisecond)
	}
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || info.Signo != 0 {
		t.Errorf("the process could be waited for (%v): the test shows nothing", err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestContainersExit checks that a rank that stands for a container has the same reason as
// in a cluster, where its exit code alone is known.
func TestContainersExit(t *testing.T) {
	for _, c := range []struct {
		event     launch.Event
		container podlife.Reason
		process   podlife.Reason
	}{
		{launch.Event{Code: 3}, podlife.RankExited, podlife.RankExited},
		{launch.Event{Code: 137}, podlife.RankKilled, podlife.RankExited},
		{launch.Event{Code: 137, Signal: "SIGKILL"}, podlife.RankKilled, podlife.RankKilled},
		{launch.Event{Code: 193}, podlife.RankExited, podlife.RankExited},
		{launch.Event{Code: 143, Signal: "SIGTERM", Told: true}, podlife.Terminated, podlife.Terminated},
	} {
		for container, want := range map[bool]podlife.Reason{true: c.container, false: c.process} {
			if f := (&Spec{Container: container}).failure(&c.event); f.Reason != want || want == podlife.RankKilled && f.Signal != "SIGKILL" {
				t.Errorf("%+v, container %v: %s by %q, want %s", c.event, container, f.Reason, f.Signal, want)
			}
		}
	}
}
