package core

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestTalks compares a row with a map.
func TestTalks(t *testing.T) {
	var row talks
	want := map[uint32]Traffic{}
	draw := rand.New(rand.NewPCG(1, 2))
	var rest Traffic
	for range 20_000 {
		dst, n := draw.Uint32N(8000), draw.Uint64N(100)
		if _, known := want[dst]; !known && len(want) == talksMax {
			rest.add(n)
		} else {
			k := want[dst]
			k.add(n)
			want[dst] = k
		}
		row.add(dst, n)
	}
	if row.rest != rest || rest.Messages == 0 {
		t.Errorf("beyond the bound: %v, want %v", row.rest, rest)
	}
	for _, k := range row.cells {
		if k.Messages != 0 && want[k.Dst] != k.Traffic {
			t.Errorf("to %d: %v, want %v", k.Dst, k.Traffic, want[k.Dst])
		}
		if k.Messages != 0 {
			delete(want, k.Dst)
		}
	}
	if len(want) != 0 {
		t.Errorf("%d partners are missing", len(want))
	}
	if n := testing.AllocsPerRun(100, func() { row.add(7, 1) }); n != 0 {
		t.Errorf("%v allocations for a known partner", n)
	}
}

// TestGroupsAreShared: equal lists of ranks make one group, and the last
// communicator of a group ends it.
func TestGroupsAreShared(t *testing.T) {
	pods := make([]int32, 100)
	for i := range pods {
		pods[i] = int32(i / 50)
	}
	c, err := New(Config{PodOf: pods, Pods: 2}, idle{})
	if err != nil {
		t.Fatal(err)
	}
	everybody := make([]uint32, len(pods))
	for i := range everybody {
		everybody[i] = uint32(i)
	}
	world, err := c.takeGroup(everybody)
	if err != nil || world != c.world {
		t.Errorf("a list of all ranks in order is not the world: %v", err)
	}
	odd := []uint32{9, 3, 77}
	a, err := c.takeGroup(odd)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.takeGroup(slices.Clone(odd))
	if err != nil || a != b {
		t.Errorf("two equal lists make two groups: %v", err)
	}
	if a.place(3) != 1 || a.place(77) != -1 || a.place(4) != -1 { // 77 is hosted elsewhere
		t.Errorf("places %d %d %d, want 1 -1 -1", a.place(3), a.place(77), a.place(4))
	}
	if other, err := c.takeGroup([]uint32{3, 9, 77}); err != nil || other == a {
		t.Errorf("another order makes the same group: %v", err)
	}
	for _, bad := range [][]uint32{{1, 1}, {100}, {5, 6, 5}} {
		if _, err := c.takeGroup(bad); err == nil {
			t.Errorf("ranks %v make a group", bad)
		}
	}
	c.dropGroup(a)
	c.dropGroup(b)
	if n := len(c.groups); n != 2 {
		t.Errorf("%d groups are kept, want the world and one", n)
	}
}

// TestGroupsAreBounded: communicators of ever other orders of the ranks come to an
// end, which an application is told, and their memory comes back.
func TestGroupsAreBounded(t *testing.T) {
	pods := make([]int32, 65_536)
	for i := range pods {
		pods[i] = int32(i / 64)
	}
	c, err := New(Config{PodOf: pods, Pods: 1024}, idle{})
	if err != nil {
		t.Fatal(err)
	}
	ranks := make([]uint32, len(pods))
	for i := range ranks {
		ranks[i] = uint32(i)
	}
	var groups []*group
	for ; err == nil; ranks = append(ranks[1:], ranks[0]) {
		var g *group
		if g, err = c.takeGroup(ranks); err == nil {
			groups = append(groups, g)
		}
	}
	if !errors.Is(err, errGroups) || len(groups) != 1+int(memory.GroupsMax(len(pods)))/(len(pods)+memory.GroupFixed) { // the first is the world
		t.Errorf("%d groups, then: %v", len(groups), err)
	}
	for _, g := range groups {
		c.dropGroup(g)
	}
	if c.grouped != 0 {
		t.Errorf("%d ranks of groups are left", c.grouped)
	}
}

// TestOutboxShrinks: the memory of a burst comes back when nothing is sent.
func TestOutboxShrinks(t *testing.T) {
	var o outbox
	o.init()
	for range 10_000 {
		o.push()
	}
	if o.shrink(); len(o.frames) < 10_000 {
		t.Fatal("frames under way are dropped")
	}
	o.base, o.next = o.last, o.last
	if o.shrink(); len(o.frames) > outboxKeep {
		t.Errorf("room for %d frames is kept", len(o.frames))
	}
	f, _ := o.push()
	f.Head.Seq = o.last
	if got := o.unposted(); len(got) != 1 || got[0].Head.Seq != 10_001 {
		t.Errorf("the next frame is %v", got)
	}
}

// TestOwnOutboxShrinks: so does that of what the ranks here have sent each other,
// to which no heartbeat goes.
func TestOwnOutboxShrinks(t *testing.T) {
	x := newCrowd(t)
	c := x.core
	c.LinkUp(1, 0, link.Caps{Name: "local"})
	for range 5000 {
		d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 1}
		d.SetInline(make([]byte, 8))
		x.submit(0, d)
	}
	for c.Flush(2, x) {
	}
	if p := &c.peers[0]; !p.out.large() {
		t.Fatalf("room for %d frames: the test shows nothing", len(p.out.frames))
	}
	if next := c.Tick(int64(time.Second)); next == 0 {
		t.Error("nobody will look at the outbox again")
	}
	for i := range x.frames {
		f := &x.frames[i]
		if err := c.Deliver(2, 0, &f.Head, f.Inline[:f.Head.Length]); err != nil {
			t.Fatal(err)
		}
	}
	for s := range int64(3) {
		c.Tick((s + 2) * int64(time.Second))
	}
	if p := &c.peers[0]; p.out.large() || p.timerAt != 0 {
		t.Errorf("room for %d frames is kept, a timer runs: %v", len(p.out.frames), p.timerAt != 0)
	}
}
