package why

import (
	"slices"
	"strings"
	"testing"
)

func recv(from int, tag uint64, s float64) Wait {
	return Wait{Kind: Recv, Peer: from, Tag: tag, Seconds: s}
}

func lockOf(target int) Wait {
	return Wait{Kind: OneSided, Name: LockName, Peer: target, Context: 3, Seconds: 4}
}

func waiting(rank int, w ...Wait) Rank { return Rank{Rank: rank, Waits: w} }

func TestExplain(t *testing.T) {
	barrier := Wait{Kind: Collective, Name: "barrier", Round: 2, Rounds: 3, For: []int{7}, Seconds: 12, Number: 5}
	for name, x := range map[string]struct {
		ranks []Rank
		want  string
	}{
		"a wrong tag": {
			[]Rank{{Rank: 1, Waits: []Wait{recv(0, 8, 4)}, Here: []Message{{Source: 0, Tag: 7, Bytes: 800}}, Count: 3}, {Rank: 0}},
			"rank 1 waits 4 s: recv from 0 tag 8; unexpected here: from 0 tag 7, 800 B; and 2 more (a wrong tag?)\n" +
				"rank 0 waits for no message: the program computes, or waits for something else",
		},
		"each other": {
			[]Rank{waiting(0, recv(1, 3, 4)), waiting(1, recv(0, 3, 0.25))},
			"ranks 0 and 1 wait for each other: 0 in recv from 1 tag 3, 1 in recv from 0 tag 3\n" +
				"rank 0 waits 4 s: recv from 1 tag 3\nrank 1 waits 250ms: recv from 0 tag 3",
		},
		"itself": {
			[]Rank{waiting(2, recv(2, 1, 1))},
			"rank 2 waits for itself: recv from 2 tag 1\nrank 2 waits 1 s: recv from 2 tag 1",
		},
		"a chain is no ring": {
			[]Rank{waiting(0, recv(1, 1, 2)), waiting(1, recv(2, 1, 2)), {Rank: 2}},
			"rank 0 waits 2 s: recv from 1 tag 1\nrank 1 waits 2 s: recv from 2 tag 1\n" +
				"rank 2 waits for no message: the program computes, or waits for something else",
		},
		"a lock": {
			[]Rank{{Rank: 0, Locks: []Lock{{Window: 3, Holders: []Holder{{1, 6}}}}}, {Rank: 1}, waiting(2, lockOf(0))},
			"rank 2 waits 4 s: lock of window 3 at rank 0, which rank 1 has held for 6 s\n" +
				"ranks 0 and 1 wait for no message: the program computes, or waits for something else",
		},
		"a lock that several have": {
			[]Rank{{Rank: 0, Locks: []Lock{{Window: 3, Holders: []Holder{{1, 6}, {4, 5}}, More: 9}}}, {Rank: 1}, {Rank: 4}, waiting(2, lockOf(0))},
			"rank 2 waits 4 s: lock of window 3 at rank 0, which rank 1 has held for 6 s, rank 4 for 5 s, 9 more ranks\n" +
				"ranks 0, 1 and 4 wait for no message: the program computes, or waits for something else",
		},
		"a lock of a rank that is not known": {
			[]Rank{waiting(2, lockOf(0))}, "rank 2 waits 4 s: lock of window 3 at rank 0",
		},
		"a ring of locks": {
			[]Rank{
				{Rank: 0, Waits: []Wait{lockOf(1)}, Locks: []Lock{{Window: 3, Holders: []Holder{{0, 6}}}}},
				{Rank: 1, Waits: []Wait{lockOf(0)}, Locks: []Lock{{Window: 3, Holders: []Holder{{1, 6}}}}},
			},
			"ranks 0 and 1 wait for each other: 0 in lock of window 3 at rank 1, which rank 1 has held for 6 s, 1 in lock of window 3 at rank 0, which rank 0 has held for 6 s\n" +
				"rank 0 waits 4 s: lock of window 3 at rank 1, which rank 1 has held for 6 s\nrank 1 waits 4 s: lock of window 3 at rank 0, which rank 0 has held for 6 s",
		},
		"a lock and a message": {
			[]Rank{{Rank: 0, Waits: []Wait{lockOf(0)}, Locks: []Lock{{Window: 3, Holders: []Holder{{1, 6}}}}}, waiting(1, recv(0, 5, 5))},
			"ranks 0 and 1 wait for each other: 0 in lock of window 3 at rank 0, which rank 1 has held for 6 s, 1 in recv from 0 tag 5\n" +
				"rank 0 waits 4 s: lock of window 3 at rank 0, which rank 1 has held for 6 s\nrank 1 waits 5 s: recv from 0 tag 5",
		},
		"who has left": {
			[]Rank{waiting(0, recv(1, 1, 2)), {Rank: 1, State: Left}},
			"rank 0 waits for rank 1, which has left the job\nrank 0 waits 2 s: recv from 1 tag 1\nrank 1: has left the job",
		},
		"the last one": {
			[]Rank{waiting(0, recv(Any, 1, 2)), {Rank: 1, State: Left}, {Rank: 2, State: Left}},
			"rank 0 waits for a message from any rank, and all other ranks have left the job\nrank 0 waits 2 s: recv from any rank tag 1\nranks 1 and 2: have left the job",
		},
		"not the last one": {
			[]Rank{waiting(0, recv(Any, 1, 2)), {Rank: 1, State: Left}, waiting(2, recv(Any, 1, 2))},
			"ranks 0 and 2 wait 2 s: recv from any rank tag 1\nrank 1: has left the job",
		},
		"stopped": {
			[]Rank{waiting(0, recv(1, 1, 2)), {Rank: 1, Stopped: 77}},
			"rank 1 is stopped by a signal (SIGSTOP or a debugger): `kill -CONT 77` lets its process go on\nrank 0 waits 2 s: recv from 1 tag 1",
		},
		"frozen": {
			[]Rank{waiting(0, recv(1, 1, 2)), {Rank: 1, Stopped: 77, Frozen: true}},
			"rank 1 is stopped by the freezer of a control group of its process (/proc/77/cgroup): `docker unpause`, 0 in the group's cgroup.freeze, or THAWED in its freezer.state, lets it go on\nrank 0 waits 2 s: recv from 1 tag 1",
		},
		"who have left": {
			[]Rank{{Rank: 0, State: Left}, {Rank: 1, State: Left}, {Rank: 2, State: NotStarted}},
			"ranks 0 and 1: have left the job\nrank 2: has not attached to a sidecar",
		},
		"in MPI_Init": {
			[]Rank{
				{Rank: 0, Meeting: 7, Waits: []Wait{recv(Any, 1, 2)}}, {Rank: 1, State: Ended}, {Rank: 2, State: NotStarted, Meeting: 3}, {Rank: 3, State: NotStarted},
			},
			"ranks 0 and 2 wait 7 s: in MPI_Init or MPI_Finalize, for all ranks\nrank 1: has ended without MPI\nrank 3: has not attached to a sidecar",
		},
		"alike": {
			[]Rank{waiting(0, barrier), waiting(2, barrier), waiting(1, barrier), waiting(5, barrier)},
			"ranks 0 to 2 and 5 wait 12 s: barrier in round 2 of 3 for rank 7",
		},
		"another collective": {
			[]Rank{waiting(0, barrier), waiting(1, Wait{Kind: Collective, Name: "bcast", Number: 5, Seconds: 1, Peer: Any})},
			"ranks disagree about a collective: rank 0 is in barrier, rank 1 is in bcast\n" +
				"rank 0 waits 12 s: barrier in round 2 of 3 for rank 7\nrank 1 waits 1 s: bcast",
		},
		"on its way": {
			[]Rank{waiting(0, Wait{Kind: Recv, Peer: 1, Tag: 9, Bytes: 3 << 20, Moving: true, Seconds: 90})},
			"rank 0 waits 1m30s: recv from 1 tag 9, 3 MiB on their way",
		},
		"wildcards": {
			[]Rank{waiting(0, Wait{Kind: Probe, Peer: Any, Ignore: ^uint64(0), Context: 4, Seconds: 2})},
			"rank 0 waits 2 s: probe from any rank any tag in communicator 4",
		},
	} {
		if got := strings.Join(Explain(x.ranks), "\n"); got != x.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, x.want)
		}
	}
}

// TestHintIsNotLost: of many waiting ranks, the one with a suspected mistake comes first,
// however short its wait is.
func TestHintIsNotLost(t *testing.T) {
	ranks := make([]Rank, 10_000)
	for i := range ranks {
		ranks[i] = waiting(i, recv(Any, uint64(i), float64(100+i)))
	}
	ranks[77].Waits[0] = recv(5, 8, 1)
	ranks[77].Here, ranks[77].Count = []Message{{Source: 5, Tag: 7, Bytes: 800}}, 1
	if got := Explain(ranks)[0]; got != "rank 77 waits 1 s: recv from 5 tag 8; unexpected here: from 5 tag 7, 800 B (a wrong tag?)" {
		t.Errorf("first: %s", got)
	}
}

// TestManyRanks: a large job is explained in few lines, and the time grows linearly with the
// job.
func TestManyRanks(t *testing.T) {
	ranks := make([]Rank, 65_536)
	for i := range ranks {
		ranks[i] = waiting(i, recv((i+1)%len(ranks), uint64(i), float64(i)))
	}
	lines := Explain(ranks)
	if len(lines) > lineLimit+4 {
		t.Errorf("%d lines", len(lines))
	}
	if !strings.Contains(lines[0], "ranks 0 to 65535 wait for each other in a ring") || len(lines[0]) > 400 {
		t.Errorf("the ring is told by %d characters: %.200s", len(lines[0]), lines[0])
	}
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "rank 65535 waits") }) {
		t.Error("who waits longest is not told")
	}
}
