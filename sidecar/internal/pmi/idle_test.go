package pmi

import (
	"strings"
	"testing"
	"time"
)

// idleAnswer asks about a rank without MPI until the answer is final.
func idleAnswer(t *testing.T, r *rank, line string) string {
	t.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		r.send(line)
		answer := r.hear()
		if answer != "cmd=idle rc=0 known=0 waits=-1" {
			return answer
		}
		if time.Now().After(end) {
			t.Fatalf("no final answer: %s", answer)
		}
	}
}

// TestIdleInOnePod: ranks of the same pod wait, by PMI or by PMIx.
func TestIdleInOnePod(t *testing.T) {
	addrs := serve(t, func(c *Config) { c.Idle = func(int) {} })
	launcher := dial(t, addrs[0])
	launcher.ask("cmd=outrigger_idle rank=1 met=-1", "cmd=idle rc=0 known=0 waits=-1")
	launcher.ask("cmd=outrigger_idle rank=1 met=0", "cmd=idle rc=0 known=1 waits=0")
	launcher.ask("cmd=outrigger_idle rank=1 met=1", "cmd=idle rc=0 known=0 waits=-1")
	join(t, addrs[0], 0)
	launcher.ask("cmd=outrigger_idle rank=1 met=-1", "cmd=idle rc=0 known=1 waits=0")
}

// TestIdleForgotten: ranks of the same pod call MPI after the launcher has stopped asking.
// The job fails with the name of the rank that has not called it.
func TestIdleForgotten(t *testing.T) {
	named := make(chan int, 2)
	addrs := serve(t, func(c *Config) { c.Idle = func(rank int) { named <- rank } })
	launcher := dial(t, addrs[0])
	launcher.ask("cmd=outrigger_idle rank=1 met=-1", "cmd=idle rc=0 known=0 waits=-1")
	join(t, addrs[0], 0)
	select {
	case rank := <-named:
		if rank != 1 {
			t.Errorf("the job ends for rank %d", rank)
		}
	case <-time.After(timeout):
		t.Error("the job goes on")
	}
}

// TestMeeting checks which ranks wait for all others, and since when, in a barrier or a
// fence of the pod.
func TestMeeting(t *testing.T) {
	s := New(Config{First: 2, Count: 2})
	if s.Meeting(2) != 0 || s.Idle(2) {
		t.Error("no rank waits")
	}
	s.waiting = []*client{{rank: 3, entered: time.Now().Add(-time.Minute)}}
	if s.Meeting(2) != 0 || s.Meeting(3) < time.Minute {
		t.Errorf("in the barrier: %v, %v", s.Meeting(2), s.Meeting(3))
	}
	s.fences, s.fencing = 1, time.Now().Add(-time.Hour)
	if s.Meeting(2) < time.Hour {
		t.Errorf("in the fence: %v", s.Meeting(2))
	}
	s.idle.ranks[2] = true
	if !s.Idle(2) || s.Idle(3) {
		t.Error("rank 2 has ended, and 3 has not")
	}
}

// TestIdleElsewhere: ranks of another pod wait, in a barrier or in a fence. The launcher of
// the idle rank learns of it at once, and their round ends.
func TestIdleElsewhere(t *testing.T) {
	for what, wait := range map[string]struct {
		begin func(*testing.T, []*rank) // with a connection to the pod whose rank waits
		end   string
	}{
		"barrier": {func(_ *testing.T, r []*rank) { r[0].send("cmd=barrier_in") }, ""},
		"fence":   {func(_ *testing.T, r []*rank) { r[1].send("cmd=outrigger_fence ranks=1 bytes=0") }, "cmd=fence_result rc=-1 msg=rank_0_(pod_0)_has_ended_without_having_called_MPI_Init"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			named := make(chan int, 1)
			addrs := serve(t, func(c *Config) { c.Idle = func(rank int) { named <- rank } })
			waits := []*rank{join(t, addrs[1], 2), dial(t, addrs[1])}
			launcher := dial(t, addrs[0])
			launcher.ask("cmd=outrigger_idle rank=0 met=-1", "cmd=idle rc=0 known=0 waits=-1")
			start := time.Now()
			wait.begin(t, waits)
			if answer := idleAnswer(t, launcher, "cmd=outrigger_idle rank=0 met=-1"); answer != "cmd=idle rc=0 known=1 waits=2" {
				t.Error(answer)
			}
			i := 0
			if wait.end != "" {
				i = 1
			}
			if got := waits[i].hear(); got != wait.end || time.Since(start) < idleGrace {
				t.Errorf("%q after %v, want %q", got, time.Since(start), wait.end)
			}
			if rank := <-named; rank != 0 {
				t.Errorf("the job ends for rank %d", rank)
			}
		})
	}
}

// TestIdleAll checks that no error is reported if no rank calls MPI.
func TestIdleAll(t *testing.T) {
	addrs := serve(t)
	launchers := []*rank{dial(t, addrs[0]), dial(t, addrs[1])}
	const none = "cmd=idle rc=0 known=1 waits=-1"
	launchers[0].ask("cmd=outrigger_idle rank=1 met=-1", "cmd=idle rc=0 known=0 waits=-1")
	if answer := idleAnswer(t, launchers[1], "cmd=outrigger_idle rank=2 met=-1"); answer != none {
		t.Error(answer)
	}
	// Rank 0 may still call MPI.
	launchers[0].ask("cmd=outrigger_idle rank=1 met=-1", "cmd=idle rc=0 known=0 waits=-1")
	if answer := idleAnswer(t, launchers[0], "cmd=outrigger_idle rank=0 met=-1"); answer != none {
		t.Error(answer)
	}
	launchers[0].ask("cmd=outrigger_idle rank=1 met=-1", none)
}

// TestIdleRefused checks that ranks of other pods, and pieces with such ranks, are refused.
func TestIdleRefused(t *testing.T) {
	addrs := serve(t)
	for _, line := range []string{"cmd=outrigger_idle", "cmd=outrigger_idle rank=2 met=-1", "cmd=outrigger_idle rank=0 met=2", "cmd=outrigger_idle rank=0 met=-2", "cmd=outrigger_idle rank=0"} {
		r := dial(t, addrs[0])
		r.send(line)
		if answer := r.hear(); answer != "" {
			t.Errorf("%s: %q", line, answer)
		}
	}
	s := New(Config{Layout: []int{2, 1}})
	s.stop(errClosed) // ends the wait for the grace
	for _, piece := range []string{"i", "i2", "i-1", "ix", "i" + strings.Repeat("9", 30)} {
		if err := s.missing(s.ctx, [][]byte{[]byte(piece), []byte("k")}); err == nil || !strings.Contains(err.Error(), "pod 0 names a rank") {
			t.Errorf("%q: %v", piece, err)
		}
	}
	if err := s.missing(s.ctx, [][]byte{[]byte("k1"), nil}); err != nil {
		t.Error(err)
	}
}
