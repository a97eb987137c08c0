//go:build mpi

package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDeadlocks checks that a suspected deadlock is reported for MPI programs that wait for ever,
// although MPIs poll, and that it fails the job if that is requested. No deadlock is reported for
// programs that compute, pause, or wait for a rank that does.
func TestDeadlocks(t *testing.T) {
	const suspicion = "suspected deadlock: every rank has waited for 1 s or longer"
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "waits")
			for _, what := range []string{"probes", "tests"} {
				code, out := job{ranks: 4, pods: 2, env: unshared(m), flags: []string{"--deadlock-after", "1s", "--deadlock-fails"}}.run(t, program, what, "0")
				if code != 124 || !strings.Contains(out, suspicion) {
					t.Errorf("%s: exit code %d, want 124 and %q\n%s", what, code, suspicion, out)
				}
				if says := "MPI_Probe or MPI_Iprobe(source 2, tag 5, communicator of 4 ranks), again and again, which finds nothing"; what == "probes" && m.name != "intel" && (!strings.Contains(out, says) || !strings.Contains(out, "outrigger: remedy: probe for the source, tag and communicator")) {
					t.Errorf("%s: nothing says %q, or there is no remedy\n%s", what, says, out)
				}
			}
			if strings.HasPrefix(m.name, "openmpi") { // its MPI_Finalize waits for all ranks by PMIx
				code, out := job{ranks: 4, pods: 2, env: m.env, flags: []string{"--deadlock-after", "1s", "--deadlock-fails"}}.run(t, program, "missing collective", "0")
				if code != 124 || !strings.Contains(out, suspicion) || !strings.Contains(out, "rank 3 waits") || !strings.Contains(out, "in MPI_Init or MPI_Finalize, for all ranks") {
					t.Errorf("missing collective: exit code %d, want 124, %q and rank 3 in MPI_Finalize\n%s", code, suspicion, out)
				}
			}
			right := func(t *testing.T, what string) {
				code, out := job{ranks: 4, pods: 2, env: unshared(m), flags: []string{"--deadlock-after", "1s", "--deadlock-fails"}}.run(t, program, "right: "+what, "3")
				if code != 0 || strings.Contains(out, "suspected deadlock") {
					t.Errorf("%s: exit code %d\n%s", what, code, out)
				}
			}
			for _, what := range []string{"computes", "tests, then computes", "tests and sleeps", "waits long"} {
				right(t, what)
			}
			if m.name == "openmpi5" || m.name == "intel" {
				return
			}
			t.Run("servers", func(t *testing.T) { // two at a time
				for _, what := range []string{"probes and computes", "probes and sleeps"} {
					t.Run(what, func(t *testing.T) {
						t.Parallel()
						right(t, what)
					})
				}
			})
			t.Run("locks", func(t *testing.T) {
				t.Parallel()
				says := "outrigger: rank 3 waits [0-9]+ s: one-sided accesses at rank 0, again and again, which change nothing"
				if m.name == "mpich" { // the target has the request, and answers when it grants the lock
					says = "outrigger: rank 3 waits [0-9]+ s: in a call of MPI that has no receive of its own open, such as MPI_Win_lock"
				}
				code, out := job{ranks: 4, pods: 2, env: unshared(m), flags: []string{"--deadlock-after", "1s", "--deadlock-fails"}}.run(t, program, "window lock", "0")
				if code != 124 || !regexp.MustCompile(says).MatchString(out) || !regexp.MustCompile("outrigger: remedy: .*call MPI_Win_unlock in the rank that has locked the window").MatchString(out) {
					t.Errorf("exit code %d, want 124, %q and a remedy\n%s", code, says, out)
				}
			})
			t.Run("adds", func(t *testing.T) {
				t.Parallel()
				right(t, "adds to a window")
			})
		})
	}
}

// TestUnseenDeadlock checks a job whose MPI transfers messages within a pod itself, so that a hang
// cannot be distinguished from work: that is reported once, and by `outrigger why`. It is not
// reported for a job that computes, pauses, or waits for a rank that does.
func TestUnseenDeadlock(t *testing.T) {
	m := mpich(t)
	program := m.build(t, "waits")
	t.Run("hangs", func(t *testing.T) { // both at a time
		for _, c := range []struct {
			ranks, pods int
			says        string // by outrigger why
		}{
			{4, 2, `(?s)rank 0 waits .*ranks 1 and 3 wait .*` + notSeen},
			{2, 1, `(?s)ranks 0 and 1 wait .*: in a call of MPI that has no receive of its own open, such as MPI_Win_lock or MPI_Win_start` + notSeen},
		} {
			t.Run(fmt.Sprintf("ranks=%d/pods=%d", c.ranks, c.pods), func(t *testing.T) {
				t.Parallel()
				j := job{ranks: c.ranks, pods: c.pods, env: m.env}
				// A crowded machine takes longer until no rank has a call that begins.
				fault := ""
				for _, timeout := range []string{"8s", "40s"} {
					if fault = unseen(t, j, program, timeout, regexp.MustCompile(c.says)); fault == "" {
						return
					}
				}
				t.Error(fault)
			})
		}
	})
	for _, what := range []string{"computes", "tests, then computes", "tests and sleeps", "waits long"} {
		code, out := job{ranks: 4, pods: 2, env: m.env, flags: []string{"--deadlock-after", "1s"}}.run(t, program, "right: "+what, "4")
		if code != 0 || strings.Contains(out, "as far as is seen") {
			t.Errorf("%s: exit code %d\n%s", what, code, out)
		}
	}
}

// notSeen is a part of the lines about ranks whose MPI transfers messages within a pod itself.
const notSeen = `; what it waits for within its pod is not seen: its MPI uses shared memory of its own there`

// unseen runs a job that hangs until the timeout ends it, and returns what its output, or that of
// outrigger why meanwhile, lacks.
func unseen(t *testing.T, j job, program, timeout string, want *regexp.Regexp) string {
	t.Helper()
	const says = "no rank has begun or ended a call for 1 s or longer, as far as is seen: the MPI carries messages within a pod by shared memory of its own"
	dir, err := os.MkdirTemp("", "unseen-") //nolint:usetesting // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	var asked sync.WaitGroup
	ended, said := make(chan struct{}), ""
	asked.Go(func() {
		for !want.MatchString(said) {
			select {
			case <-ended:
				return
			case <-time.After(500 * time.Millisecond):
			}
			if text, err := exec.CommandContext(t.Context(), at(t, "outrigger"), "why", dir).CombinedOutput(); err == nil {
				said = string(text)
			}
		}
	})
	j.flags = []string{"--deadlock-after", "1s", "--timeout", timeout, "--dir", dir}
	code, out := j.run(t, program, "missing message", "0")
	close(ended)
	asked.Wait()
	switch {
	case !want.MatchString(said):
		return fmt.Sprintf("outrigger why does not print %s\n%s", want, said)
	case code != 124 || strings.Count(out, says) != 1 || strings.Contains(out, "suspected deadlock"):
		return fmt.Sprintf("exit code %d, want 124 and %q once\n%s", code, says, out)
	}
	_, told, _ := strings.Cut(out, says)
	told, remedy, is := strings.Cut(told, "outrigger: remedy: run the job with MPIR_CVAR_NOLOCAL=1")
	if !is || !want.MatchString(told) || strings.Contains(remedy, says) {
		return fmt.Sprintf("%q is not followed by %s and a remedy\n%s", says, want, out)
	}
	return ""
}

// TestVerdictSpeaksMPI checks that the verdict of a job that its MPI ends has the MPI's error.
func TestVerdictSpeaksMPI(t *testing.T) {
	for _, c := range []struct {
		m      implementation
		reason string
	}{
		{openmpi4(t), ": MPI_ERR_TRUNCATE: message truncated"}, {openmpi5(t), ": MPI_ERR_TRUNCATE: message truncated"}, {mpich(t), ": Message truncated"},
	} {
		m, reason := c.m, c.reason
		if m.name == "openmpi5" { // its message files are not at the path for which it was built
			m.env = append(m.env, "OPAL_PREFIX="+filepath.Dir(filepath.Dir(m.library)))
		}
		t.Run(m.name, func(t *testing.T) {
			code, out := job{ranks: 4, pods: 2, env: unshared(m)}.run(t, m.build(t, "waits"), "truncated", "0")
			_, verdict, _ := strings.Cut(out, "job failed: ")
			verdict, remedy, _ := strings.Cut(verdict, "\n")
			if code == 0 || !strings.HasPrefix(verdict, "rank 1 (pod 0) ") || !strings.Contains(verdict, "called abort") || !strings.HasSuffix(verdict, reason) {
				t.Errorf("exit code %d, want rank 1 and %q\n%s", code, reason, out)
			}
			if !strings.HasPrefix(remedy, "outrigger: remedy: give the receive a buffer") {
				t.Errorf("%q follows the verdict, want a remedy", remedy)
			}
			// Open MPI 5 prints its error by PMIx.
			if text := "[1] ["; strings.HasPrefix(m.name, "openmpi") && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(text)+`.*\] \*\*\* MPI_ERR_TRUNCATE: message truncated$`).MatchString(out) {
				t.Errorf("the rank's own error is not printed\n%s", out)
			}
		})
	}
}

// unshared returns an MPI's environment in which MPICH sends messages within a pod through the
// sidecar, which does not see messages in MPICH's own shared memory.
func unshared(m implementation) []string { return append(m.env, "MPIR_CVAR_NOLOCAL=1") }

// TestWhySpeaksMPI checks that `outrigger why` names what ranks wait for in terms of MPI, and that it
// reports nothing uncertain if the composition of the MPI's tags is unknown.
func TestWhySpeaksMPI(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			j := job{ranks: 4, pods: 2, env: unshared(m), flags: []string{"--deadlock-after", "1s", "--deadlock-fails"}}
			code, out := j.run(t, m.build(t, "waits"), "missing message", "0")
			if code != 124 {
				t.Errorf("exit code %d, want 124\n%s", code, out)
			}
			want := "a receive of MPI (source world rank 0, 8 B)"
			if m.name != "intel" { // its tags are not documented (docs/mpi.md)
				want = "MPI_Recv(source 0, tag 99, communicator of 4 ranks)"
				_, crossed := j.run(t, m.build(t, "waits"), "two communicators", "0")
				says := "communicators disagree: rank 0 is in a collective of one, and rank"
				if m.name == "mpich" { // no two ranks wait for each other in its barriers here
					says = "a collective of MPI (message of MPI_Barrier, source world rank 3, a communicator other than MPI_COMM_WORLD)"
				}
				if !strings.Contains(crossed, says) || m.name == "mpich" && !strings.Contains(crossed, "(in different communicators)") {
					t.Errorf("nothing says that communicators disagree\n%s", crossed)
				}
			}
			if m.name == "mpich" { // with other numbers of tag bits
				other := j
				other.env = append(slices.Clone(j.env), "MPICH_CH4_OFI_TAG_BITS=30")
				if _, out := other.run(t, m.build(t, "waits"), "missing message", "0"); !strings.Contains(out, "a receive of MPI (source world rank 0, 8 B)") || strings.Contains(out, ", tag ") {
					t.Errorf("tags of an unknown layout are read\n%s", out)
				}
			}
			if !regexp.MustCompile("outrigger: rank 1 waits [0-9]+ s: " + regexp.QuoteMeta(want)).MatchString(out) {
				t.Errorf("nothing says %q\n%s", want, out)
			}
			for _, not := range []string{" but for ", "107374182", "communicators disagree"} {
				if strings.Contains(out, not) {
					t.Errorf("%q is said\n%s", not, out)
				}
			}
		})
	}
}
