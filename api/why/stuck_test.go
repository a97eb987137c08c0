package why

import (
	"testing"
	"time"
)

// quiet returns a rank that has only waited for s seconds.
func quiet(rank int, s float64, w ...Wait) Rank { return Rank{Rank: rank, Quiet: s, Waits: w} }

func TestStuck(t *testing.T) {
	for name, x := range map[string]struct {
		ranks        []Rank
		stuck, moves bool
	}{
		"all wait":             {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 9, recv(0, 1, 9)), {Rank: 2, State: Left}}, true, false},
		"one probes in vain":   {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 9, Wait{Kind: Probe, Repeats: Iprobe, Seconds: 9, Peer: 2})}, true, false},
		"one repeats accesses": {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 9, Wait{Kind: OneSided, Repeats: Access, Seconds: 9, Peer: 0})}, true, false},
		"one probes at times":  {[]Rank{quiet(0, 5, recv(1, 1, 5)), {Rank: 1, Free: true, Waits: []Wait{{Kind: Probe, Repeats: Iprobe, Seconds: 9, Peer: 2}}}}, false, true},
		"one computes":         {[]Rank{quiet(0, 5, recv(1, 1, 5)), {Rank: 1, Quiet: 60}}, false, true},
		"one has begun to":     {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 0.1, recv(0, 1, 0.1))}, false, true},
		"an early receive":     {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 0.1, recv(0, 1, 60))}, false, true},
		"something moves":      {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 5, Wait{Kind: Send, Peer: 0, Seconds: 5, Moving: true})}, false, true},
		"one is stopped":       {[]Rank{quiet(0, 5, recv(1, 1, 5)), {Rank: 1, Stopped: 77}}, false, false},
		"one may compute":      {[]Rank{quiet(0, 5, recv(1, 1, 5)), {Rank: 1, Quiet: 5, Free: true, Waits: []Wait{recv(0, 1, 5)}}}, false, true},
		"one has not read":     {[]Rank{quiet(0, 5, recv(1, 1, 5)), {Rank: 1, Quiet: 5, Unread: true, Waits: []Wait{recv(0, 1, 5)}}}, false, true},
		"a younger one moves":  {[]Rank{quiet(0, 5, recv(1, 1, 5)), {Rank: 1, Quiet: 5, Moves: true, Waits: []Wait{recv(0, 1, 5)}}}, false, true},
		"one is not started":   {[]Rank{quiet(0, 5, recv(1, 1, 5)), {Rank: 1, State: NotStarted}}, false, true},
		"all have left":        {[]Rank{{Rank: 0, State: Left}}, false, false},
		"no rank is known":     {nil, false, false},
	} {
		if stuck, moves := Stuck(x.ranks, time.Second), Moves(x.ranks, time.Second); stuck != x.stuck || moves != x.moves {
			t.Errorf("%s: stuck %v, moves %v", name, stuck, moves)
		}
	}
}

func TestHolds(t *testing.T) {
	free := quiet(0, 9, recv(1, 1, 9))
	free.Free = true
	for name, x := range map[string]struct {
		ranks []Rank
		holds bool
	}{
		"one computes":      {[]Rank{quiet(0, 5, recv(1, 1, 5)), {Rank: 1, Quiet: 60}}, true},
		"waits for little":  {[]Rank{quiet(0, 4, recv(1, 1, 4)), {Rank: 1, Quiet: 60}}, false},
		"an early receive":  {[]Rank{quiet(0, 0.1, recv(1, 1, 60)), {Rank: 1}}, false},
		"all compute":       {[]Rank{free, {Rank: 1, Quiet: 60}}, false},
		"who waits is gone": {[]Rank{{Rank: 0, State: Left, Quiet: 9, Waits: []Wait{recv(1, 1, 9)}}}, false},
		"no rank is known":  {nil, false},
	} {
		if holds := Holds(x.ranks, 5*time.Second); holds != x.holds {
			t.Errorf("%s: %v", name, holds)
		}
	}
}

// TestHalted: ranks that are stopped, or that may continue by themselves, are not in a
// deadlock.
func TestHalted(t *testing.T) {
	wait := quiet(0, 5, recv(1, 1, 5))
	stopped := quiet(1, 5, recv(0, 1, 5))
	stopped.Stopped = 77
	for name, x := range map[string]struct {
		ranks []Rank
		want  int // number of halted ranks
	}{
		"one is stopped":             {[]Rank{wait, stopped}, 1},
		"all are stopped":            {[]Rank{stopped, stopped}, 2},
		"stopped, and one computes":  {[]Rank{wait, stopped, {Rank: 2}}, 0},
		"stopped, and one has left":  {[]Rank{wait, stopped, {Rank: 2, State: Left}}, 1},
		"none is stopped":            {[]Rank{wait, wait}, 0},
		"stopped, others wait since": {[]Rank{quiet(0, 0.5, recv(1, 1, 0.5)), stopped}, 0},
	} {
		if got := Halted(x.ranks, time.Second); len(got) != x.want {
			t.Errorf("%s: %d are halted, want %d", name, len(got), x.want)
		}
		if stuck, moves := Stuck(x.ranks, time.Second), Moves(x.ranks, time.Second); x.want > 0 && (stuck || moves) {
			t.Errorf("%s: stuck %v, moves %v", name, stuck, moves)
		}
	}
}

// TestAlone: ranks that have left do not wait for a stopped one. Ranks that will join a later
// program do.
func TestAlone(t *testing.T) {
	stopped, left := Rank{Rank: 1, Stopped: 77}, Rank{Rank: 0, State: Left}
	for name, x := range map[string]struct {
		ranks []Rank
		want  bool
	}{
		"all others have left": {[]Rank{left, stopped}, true},
		"all are stopped":      {[]Rank{stopped, stopped}, true},
		"one waits":            {[]Rank{left, stopped, quiet(2, 5, recv(1, 1, 5))}, false},
		"one has not come":     {[]Rank{{Rank: 0, State: Left, Returns: true, Generation: 1}, {Rank: 1, Stopped: 77, Generation: 2}}, false},
	} {
		if got := Alone(x.ranks); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSuspicion(t *testing.T) {
	const want = "suspected deadlock: every rank has waited for 5m0s or longer, and nothing is under way"
	if got := Suspicion(5 * time.Minute); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestStuckWithLocal: a rank whose MPI transfers messages within its pod by itself may make
// progress there.
func TestStuckWithLocal(t *testing.T) {
	waits := []Wait{{Kind: Recv, Seconds: 100}}
	ranks := []Rank{{Rank: 0, Quiet: 100, Waits: waits}, {Rank: 1, Quiet: 100, Waits: waits}}
	if !Stuck(ranks, time.Minute) {
		t.Fatal("two ranks that wait are in no deadlock")
	}
	ranks[1].Local = true
	if Stuck(ranks, time.Minute) {
		t.Error("a rank with messages that are not seen is in a deadlock")
	}
	if seen, hidden := Seen(ranks); !hidden || !Stuck(seen, time.Minute) || !ranks[1].Local {
		t.Errorf("as far as is seen all wait: %v, %+v of %+v", hidden, seen, ranks)
	}
	if _, hidden := Seen(ranks[:1]); hidden {
		t.Error("all is seen of a rank whose messages go by the sidecar")
	}
}

// TestStuckWhereAllMeet: a rank in MPI_Finalize waits for all others. If other ranks wait for
// it, the job is stuck, whatever requests the rank's MPI has open. If all ranks are in
// MPI_Finalize, or one computes, it is not.
func TestStuckWhereAllMeet(t *testing.T) {
	meets := Rank{Rank: 3, Meeting: 12, Free: true, Quiet: 1}
	waits := Rank{Rank: 0, Quiet: 12, Waits: []Wait{{Kind: Recv, Seconds: 12}}}
	computes := Rank{Rank: 1, Quiet: 12}
	for name, c := range map[string]struct {
		ranks []Rank
		want  bool
	}{
		"others wait":       {[]Rank{waits, meets}, true},
		"all meet":          {[]Rank{meets, meets}, false},
		"one computes":      {[]Rank{waits, meets, computes}, false},
		"not for long":      {[]Rank{waits, {Rank: 3, Meeting: 3}}, false},
		"it is stopped":     {[]Rank{waits, {Rank: 3, Meeting: 12, Stopped: 7}}, false},
		"others have left":  {[]Rank{{Rank: 0, State: Left}, meets}, false},
		"no rank is in one": {[]Rank{waits}, true},
	} {
		if got := Stuck(c.ranks, 10*time.Second); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
