package collective

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// roomOf returns a room of pod 0 without applications.
func roomOf(t testing.TB, podOf []int32) *Room {
	t.Helper()
	hosted := 0
	for _, pod := range podOf {
		if pod == 0 {
			hosted++
		}
	}
	r, err := New(Config{PodOf: podOf, Hosted: hosted, VectorPiece: 4096}, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGroupsAreShared checks that equal lists of ranks make one group, which is freed with the
// last communicator that uses it.
func TestGroupsAreShared(t *testing.T) {
	pods := make([]int32, 100)
	for i := range pods {
		pods[i] = int32(i / 50)
	}
	r := roomOf(t, pods)
	everybody := make([]uint32, len(pods))
	for i := range everybody {
		everybody[i] = uint32(i)
	}
	maker := &r.made[0]
	world, err := r.acquireGroup(everybody, maker)
	if err != nil || world != r.world {
		t.Errorf("a list of all ranks in order is not the world: %v", err)
	}
	odd := []uint32{9, 3, 77}
	a, err := r.acquireGroup(odd, maker)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.acquireGroup(slices.Clone(odd), maker)
	if err != nil || a != b {
		t.Errorf("two equal lists make two groups: %v", err)
	}
	if a.index(3) != 1 || a.index(77) != -1 || a.index(4) != -1 { // 77 is hosted elsewhere
		t.Errorf("places %d %d %d, want 1 -1 -1", a.index(3), a.index(77), a.index(4))
	}
	if other, err := r.acquireGroup([]uint32{3, 9, 77}, maker); err != nil || other == a {
		t.Errorf("another order makes the same group: %v", err)
	}
	for _, bad := range [][]uint32{{1, 1}, {100}, {5, 6, 5}} {
		if _, err := r.acquireGroup(bad, maker); err == nil {
			t.Errorf("ranks %v make a group", bad)
		}
	}
	r.releaseGroup(a)
	r.releaseGroup(b)
	if n := len(r.groups); n != 2 {
		t.Errorf("%d groups are kept, want the world and one", n)
	}
}

// TestGroupsAreBounded checks that communicators with ever different orders of the ranks are
// bounded, that the application gets an error beyond the bound, that another rank still has its share
// then, and that their memory is released.
func TestGroupsAreBounded(t *testing.T) {
	pods := make([]int32, 65_536)
	for i := range pods {
		pods[i] = int32(i / 64)
	}
	r := roomOf(t, pods)
	ranks := make([]uint32, len(pods))
	for i := range ranks {
		ranks[i] = uint32(i)
	}
	var groups []*group
	var err error
	for ; err == nil; ranks = append(ranks[1:], ranks[0]) {
		var g *group
		if g, err = r.acquireGroup(ranks, &r.made[0]); err == nil {
			groups = append(groups, g)
		}
	}
	most := memory.GroupsMax(len(pods))
	share := most / 4 / 64
	if want := 1 + int(most-64*share)/(len(pods)+memory.GroupFixed); !errors.Is(err, errGroups) || len(groups) != want { // one of the groups is the world
		t.Errorf("%d groups, want %d, then: %v", len(groups), want, err)
	}
	for rank := 1; rank < 64; rank++ {
		g, err := r.acquireGroup(ranks[rank:int(share)+rank-memory.GroupFixed], &r.made[rank])
		if err != nil {
			t.Fatalf("rank %d, which has no list: %v", rank, err)
		}
		groups = append(groups, g)
	}
	if n := r.lists.Used(); n > most {
		t.Errorf("%d ranks are in lists, at most %d", n, most)
	}
	for _, g := range groups {
		r.releaseGroup(g)
	}
	if n := r.lists.Used(); n != 0 || slices.Max(r.made) != 0 {
		t.Errorf("%d ranks of groups are left", n)
	}
}

// TestSpareMemoryIsForLists checks that lists of ranks may take more if the sidecar has more memory.
func TestSpareMemoryIsForLists(t *testing.T) {
	r, err := New(Config{PodOf: []int32{0}, Hosted: 1, MoreLists: 1000}, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.lists.Most(), memory.GroupsMax(1)+1000; got != want {
		t.Errorf("%d ranks may be in lists, want %d", got, want)
	}
}

// inUse returns the bytes of the heap that are in use.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestListsOfRanksAreCounted checks that communicators with ever different lists of ranks,
// short and long, take no more memory than the formula has for them.
func TestListsOfRanksAreCounted(t *testing.T) {
	const ranks = 4096
	for _, size := range []int{1, 2, 64, ranks} {
		pods := make([]int32, ranks)
		for i := range pods {
			pods[i] = int32(i / 64)
		}
		r := roomOf(t, pods)
		var err error
		before, list := inUse(), make([]uint32, size)
		for n := 0; err == nil && n < 1<<24; n++ {
			for i := range list {
				list[i] = uint32(n*(1+n/ranks)+i*(1+n/ranks)) % ranks
			}
			if _, err = r.acquireGroup(list, &r.made[n%len(r.made)]); err != nil && !errors.Is(err, errGroups) {
				err = nil // some rank is in it twice
			}
			if size == 1 && n == ranks {
				break
			}
		}
		if kept, most := inUse()-before, memory.GroupsMax(ranks)*24; kept > most {
			t.Errorf("lists of %d ranks: %d bytes are kept, %d are counted", size, kept, most)
		}
		runtime.KeepAlive(r)
	}
}

// TestTooManyCommunicators checks that a rank with commLimit communicators gets a status for
// one more, keeps its session, and can create one again after it has freed one.
func TestTooManyCommunicators(t *testing.T) {
	s := newStage(t)
	create := func(context uint32) string {
		t.Helper()
		s.log.Reset()
		if err := s.room.SubmitComm(0, &shm.Descriptor{Op: shm.OpComm, Req: 2, Context: context}); err != nil {
			t.Fatalf("communicator %d: %v", context, err)
		}
		return s.log.String()
	}
	ends := func(status shm.Status) string {
		return fmt.Sprintf("rank 0: its communicator is there, status %d\n", status)
	}
	for context := range uint32(commLimit - 1) { // the world is one of them
		if got, want := create(context+1), ends(shm.StatusOK); got != want {
			t.Fatalf("communicator %d: %q, want %q", context+1, got, want)
		}
	}
	if got, want := create(commLimit), ends(shm.StatusNoMemory); got != want {
		t.Errorf("one more: %q, want %q", got, want)
	}
	s.room.FreeComm(0, 1)
	if got, want := create(commLimit), ends(shm.StatusOK); got != want {
		t.Errorf("after one was freed: %q, want %q", got, want)
	}
}
