package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// sidecarPID waits until a pod's sidecar has been started.
func (j *job) sidecarPID(pod int) int {
	j.t.Helper()
	for end := time.Now().Add(jobTime); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		raw, err := os.ReadFile(filepath.Join(j.dir, fmt.Sprintf("pod%d", pod), "sidecar.pid"))
		if err == nil && strings.HasSuffix(string(raw), "\n") {
			return number(j.t, string(raw))
		}
	}
	j.t.Fatalf("no sidecar of pod %d\n%s", pod, j.out)
	return 0
}

// TestSidecarStoppedForGood checks that a stopped sidecar is named as the cause, whenever it
// is stopped, also if no other pod needs it.
func TestSidecarStoppedForGood(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		ranks, pods int
		after       time.Duration
	}{
		"at once":                {4, 2, 0},
		"while it starts":        {4, 2, 10 * time.Millisecond},
		"while ranks attach":     {4, 2, 60 * time.Millisecond},
		"in the steady state":    {4, 2, 700 * time.Millisecond},
		"no other pod is there":  {2, 1, 0},
		"alone, in steady state": {2, 1, 700 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			j := start(t, c.ranks, c.pods, ring("-rounds", "100000000", "-bytes", "4096")...)
			pid := j.sidecarPID(c.pods - 1)
			time.Sleep(c.after) // some moment of the start
			if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			code, out := j.wait()
			t.Logf("the job ended %v after the stop", time.Since(begun))
			want := fmt.Sprintf("job failed: sidecar of pod %d (ranks %d-%d) is lost: its process %d has been stopped for ", c.pods-1, c.ranks-2, c.ranks-1, pid)
			if code != 1 || !strings.Contains(out, want) {
				t.Errorf("exit code %d, want 1 and %q\n%s", code, want, out)
			}
			j.left()
		})
	}
}

// TestLauncherStopped checks that a job that reaches its time limit while a launcher is
// stopped reports the stopped launcher.
func TestLauncherStopped(t *testing.T) {
	t.Parallel()
	j := startWith(t, []string{"--timeout", "3s"}, 2, 1, "/bin/sh", "-c", `echo "my launcher is $PPID"; exec sleep 1`)
	pid := number(t, j.waitFor(`my launcher is (\d+)`)[1])
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	code, out := j.wait()
	if want := fmt.Sprintf("the launcher of pod 0 is stopped (process %d)", pid); code != 124 || !strings.Contains(out, want) {
		t.Errorf("exit code %d, want 124 and %q\n%s", code, want, out)
	}
	j.left()
}

// TestSidecarStoppedAndGoesOn: in a cluster, no process learns that another is stopped. The
// peers give a stopped sidecar up; when it continues, they report that to it, and its ranks
// get the same error as all others.
func TestSidecarStoppedAndGoesOn(t *testing.T) {
	for _, stopped := range []int{0, 1} { // the one that dials, and the other
		t.Run(fmt.Sprint("pod ", stopped), func(t *testing.T) {
			h := prepareHand(t, 2, 2)
			h.doc.Tuning.DeadAfter = bootstrap.Duration(3 * time.Second) // longer than a busy machine keeps a healthy one waiting
			h.doc.Tuning.Heartbeat = bootstrap.Duration(100 * time.Millisecond)
			h.writeDocument()
			pods := []*pod{h.pod(0), h.pod(1)}
			for _, p := range pods {
				p.startSidecar()
				p.startRanks("outrigger-launch", testBinary(t), endCommand, "obey")
			}
			for _, p := range pods {
				p.ranks.says("is process")
			}
			other := pods[1-stopped]
			pods[stopped].sidecar.signal(unix.SIGSTOP)
			other.ranks.wait(1) // they have been told that it is lost
			pods[stopped].sidecar.signal(unix.SIGCONT)
			pods[stopped].ranks.wait(1) // and without end if no process told them
			reports := []podlife.Report{pods[0].report(), pods[1].report()}
			want := fmt.Sprintf("sidecar of pod %d (ranks %d-%d) is lost: nothing heard for 3s", stopped, 2*stopped, 2*stopped+1)
			for _, r := range reports {
				if r.Sidecar == nil || len(r.Sidecar.Failures) == 0 || r.Sidecar.Failures[0].Text != want {
					t.Errorf("the sidecar of pod %d agreed on %+v, want %q", r.Pod, r.Sidecar, want)
				}
			}
			if v := podlife.Blame(reports); v == nil || v.Reason != podlife.SidecarLost || v.Rank != 2*stopped {
				t.Errorf("the verdict is %+v", v)
			}
		})
	}
}

// TestPeerStoppedBeforeItWasReached checks that a sidecar that is stopped before the first
// connection is given up in time, and named: the kernel accepts connections for it, so it has
// started.
func TestPeerStoppedBeforeItWasReached(t *testing.T) {
	for _, stopped := range []int{0, 1} {
		t.Run(fmt.Sprint("pod ", stopped), func(t *testing.T) {
			h := prepareHand(t, 2, 2)
			h.doc.Tuning.DeadAfter = bootstrap.Duration(time.Second)
			h.doc.Tuning.Heartbeat = bootstrap.Duration(100 * time.Millisecond)
			h.writeDocument()
			pods := []*pod{h.pod(0), h.pod(1)}
			for _, p := range pods {
				p.startSidecar().says("msg=ready")
			}
			pods[stopped].sidecar.signal(unix.SIGSTOP)
			other := pods[1-stopped]
			other.startRanks("outrigger-launch", testBinary(t), endCommand, "obey").wait(1)
			other.sidecar.signal(unix.SIGTERM)
			other.sidecar.wait(0)
			want := fmt.Sprintf("sidecar of pod %d (ranks %d-%d) is lost: it accepts connections and sends nothing for 1.5s", stopped, 2*stopped, 2*stopped+1)
			if m := lastWords(t, other.sidecarLog); len(m.Failures) == 0 || m.Failures[0].Text != want {
				t.Errorf("the last words are %+v, want %q", m, want)
			}
		})
	}
}

// TestSidecarStartedAgain checks that a sidecar that replaces a killed one is not accepted as
// the same peer: the job fails on both sides, with the reason.
func TestSidecarStartedAgain(t *testing.T) {
	for _, again := range []int{0, 1} {
		t.Run(fmt.Sprint("pod ", again), func(t *testing.T) {
			h := prepareHand(t, 2, 2)
			h.doc.Tuning.DeadAfter = bootstrap.Duration(time.Minute) // that it was away is not the reason
			h.writeDocument()
			pods := []*pod{h.pod(0), h.pod(1)}
			for _, p := range pods {
				p.startSidecar()
				p.startRanks("outrigger-launch", testBinary(t), endCommand, "obey")
			}
			for _, p := range pods {
				p.ranks.says("is process")
			}
			p, other := pods[again], pods[1-again]
			p.sidecar.signal(unix.SIGKILL)
			p.sidecar.wait(-1)
			for _, left := range []string{h.socket(again), fmt.Sprintf("%s/once%d", h.dir, again)} {
				if err := os.Remove(left); err != nil {
					t.Fatal(err)
				}
			}
			p.startSidecar()
			want := fmt.Sprintf("sidecar of pod %d (ranks %d-%d) is lost: it was started again", again, 2*again, 2*again+1)
			other.ranks.wait(1)
			p.sidecar.says(want)
			for _, p := range pods {
				if m := lastWords(t, p.sidecarLog); len(m.Failures) == 0 || m.Failures[0].Text != want {
					t.Errorf("the last words of pod %d's sidecar are %+v, want %q", p.number, m, want)
				}
			}
		})
	}
}

// TestWhyOfAStoppedSidecar checks that outrigger why reports the waits of other pods, and for
// the pod of a stopped sidecar why nothing is known, before the job ends.
func TestWhyOfAStoppedSidecar(t *testing.T) {
	t.Parallel()
	j := start(t, 4, 2, os.Args[0], hangingCommand, "ring")
	pid := j.sidecarPID(1)
	ask := func() string {
		out, _ := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), "why", j.dir).CombinedOutput()
		return string(out)
	}
	for said := ""; !strings.Contains(said, "wait for each other in a ring"); said = ask() {
		if t.Context().Err() != nil {
			t.Fatal(said)
		}
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	said := ask()
	want := fmt.Sprintf("pod 1: nothing is known of its ranks: the process of its sidecar, %d, is stopped by a signal (SIGSTOP)", pid)
	if !strings.Contains(said, want) || !strings.Contains(said, "recv from") {
		t.Errorf("it does not say %q\n%s", want, said)
	}
	if code, out := j.wait(); code != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
