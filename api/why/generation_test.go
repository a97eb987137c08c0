package why

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// of returns a rank in a generation of attachments.
func of(generation uint64, r Rank) Rank {
	r.Generation = generation
	return r
}

// TestGenerationsAreNotCompared: the ranks of one pod are in their second program, while those
// of another pod have begun, or begin, different collectives in their first one.
func TestGenerationsAreNotCompared(t *testing.T) {
	barrier := Wait{Kind: Collective, Name: "barrier", Number: 1, Rounds: 2, Peer: Any, For: []int{2}, Seconds: 4}
	gather := Wait{Kind: Collective, Name: "gather of root 2", Number: 1, Peer: Any, For: []int{0}, Seconds: 4}
	past := []Begun{{Name: "allreduce", Number: 2}, {Name: "bcast of root 0", Number: 1}}
	far := []Begun{{Name: "allreduce", Number: 900, Count: 899}, {Name: "barrier", Number: 1}}
	lock := Wait{Kind: OneSided, Name: LockName, Peer: 2, Context: 1, Seconds: 4}
	held := []Lock{{Window: 1, Holders: []Holder{{Rank: 0, Seconds: 9}}}}
	mpi := func(communicator uint32, peer int) Wait {
		return Wait{Kind: Recv, MPI: MPICollective, Context: communicator, Peer: peer, Seconds: 4}
	}
	for name, x := range map[string]struct {
		first, second Rank   // second is in its second program
		line          string // part of a line if both are in one program
	}{
		"a history":      {Rank{Rank: 2, State: Left, Past: past}, waiting(0, barrier), TextDisagreement},
		"of one started": {Rank{Rank: 2, State: NotStarted, Returns: true, Past: past}, waiting(0, barrier), TextDisagreement},
		"a wait":         {waiting(2, gather), waiting(0, barrier), TextDisagreement},
		"further ahead":  {Rank{Rank: 2, Past: far}, waiting(0, barrier), "is past it"},
		"a ring":         {waiting(2, recv(0, 1, 4)), waiting(0, recv(2, 1, 4)), "wait for each other"},
		"a lock":         {Rank{Rank: 2, Locks: held}, waiting(0, lock), "has held"},
		"communicators":  {waiting(2, mpi(3, 0)), waiting(0, mpi(4, 2)), "communicators disagree"},
		"has left":       {Rank{Rank: 2, State: Left, Returns: true}, waiting(0, recv(2, 1, 4)), "has left the job"},
		"all have left":  {Rank{Rank: 2, State: Left, Returns: true}, waiting(0, recv(Any, 1, 4)), "all other ranks have left"},
	} {
		for _, generation := range []uint64{0, 1, 7} {
			lines := strings.Join(Explain([]Rank{of(generation, x.second), of(generation, x.first)}), "\n")
			if !strings.Contains(lines, x.line) {
				t.Errorf("%s: %q of ranks that are both in program %d, want %q", name, lines, generation, x.line)
			}
		}
		ranks := []Rank{of(2, x.second), of(1, x.first)}
		if lines := strings.Join(Explain(ranks), "\n"); strings.Contains(lines, x.line) {
			t.Errorf("%s: %q of two programs", name, lines)
		}
		if lines := append(Disagreements(ranks), Disagreed(ranks)...); len(lines) > 0 {
			t.Errorf("%s: %q of two programs", name, lines)
		}
	}
}

// TestLaterProgramDisagrees: a disagreement in a second program is found, and names no rank
// that is still in the first one.
func TestLaterProgramDisagrees(t *testing.T) {
	in := func(name string) Wait { return Wait{Kind: Collective, Name: name, Number: 1, Peer: Any} }
	ranks := []Rank{of(2, waiting(0, in("barrier"))), of(2, waiting(1, in("scan"))), of(1, waiting(2, in("allreduce")))}
	if got, want := Disagreements(ranks), []string{TextDisagreement + "rank 0 is in barrier, rank 1 is in scan"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBehindAnEarlierProgram: many ranks wait for a rank that is still in its first program.
// Ranks of the first program wait for no rank of the second one.
func TestBehindAnEarlierProgram(t *testing.T) {
	var up, down []Rank
	for r := 1; r <= behindLeast+1; r++ {
		up = append(up, of(2, waiting(r, recv(r/2, 1, 4))))
		down = append(down, of(1, waiting(r, recv(r/2, 1, 4))))
	}
	if lines := Explain(append(up, of(1, Rank{Rank: 0}))); !strings.HasPrefix(lines[0], "9 ranks wait for rank 0") {
		t.Errorf("%q", lines)
	}
	if lines := Explain(append(down, of(2, Rank{Rank: 0}))); !strings.HasPrefix(lines[0], "8 ranks wait for rank 1, ") {
		t.Errorf("%q", lines)
	}
}

// TestStuckBeforeTheNextProgram: a rank that has left an earlier program may still join the
// one in which the others are, unless its process has ended.
func TestStuckBeforeTheNextProgram(t *testing.T) {
	stopped := of(2, Rank{Rank: 1, Stopped: 77})
	for name, x := range map[string]struct {
		left  Rank
		stuck bool
	}{
		"it may come":        {of(1, Rank{Rank: 2, State: Left, Returns: true}), false},
		"it has ended":       {of(1, Rank{Rank: 2, State: Left}), true},
		"it is in the last":  {of(2, Rank{Rank: 2, State: Left, Returns: true}), true},
		"it knows of itself": {of(1, Rank{Rank: 2, State: NotStarted, Returns: true}), false},
	} {
		ranks := []Rank{of(2, quiet(0, 5, recv(Any, 1, 5))), x.left}
		was := slices.Clone(ranks)
		if got := Stuck(ranks, time.Second); got != x.stuck {
			t.Errorf("%s: stuck %v, want %v", name, got, x.stuck)
		}
		if got := Halted(append(ranks, stopped), time.Second) != nil; got != x.stuck {
			t.Errorf("%s: halted %v, want %v", name, got, x.stuck)
		}
		Explain(ranks)
		for i := range ranks {
			if ranks[i].State != was[i].State {
				t.Errorf("%s: the caller's rank %d is changed", name, i)
			}
		}
	}
}
