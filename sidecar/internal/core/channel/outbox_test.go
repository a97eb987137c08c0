package channel

import "testing"

// TestOutboxShrinks checks that the memory of a burst is released when nothing is sent.
func TestOutboxShrinks(t *testing.T) {
	var o Outbox
	o.Init()
	for range 10_000 {
		o.Push()
	}
	if o.Shrink(); len(o.frames) < 10_000 {
		t.Fatal("frames under way are dropped")
	}
	o.base, o.next = o.last, o.last
	if o.Shrink(); len(o.frames) > outboxKeep {
		t.Errorf("room for %d frames is kept", len(o.frames))
	}
	f, _ := o.Push()
	f.Head.Seq = o.last
	if got := o.Unposted(); len(got) != 1 || got[0].Head.Seq != 10_001 {
		t.Errorf("the next frame is %v", got)
	}
}

// TestDelivery checks that the release of a frame whose delivery is confirmed is not returned
// again when the frame is acknowledged, and that a release that needs the peer waits for the
// acknowledgement.
func TestDelivery(t *testing.T) {
	var o Outbox
	o.Init()
	kinds := []ReleaseKind{1, ReleaseTaken | 1, ReleaseNothing}
	for _, k := range kinds {
		f, r := o.Push()
		r.Kind = k
		o.Posted(f)
	}
	for i, want := range []bool{true, false, false} {
		r, ok := o.Deliver(uint64(i + 1))
		if ok != want || ok && r.Kind != kinds[i] {
			t.Errorf("frame %d has come: released %v as %v", i+1, ok, r)
		}
	}
	o.Confirm(3)
	for i, want := range []ReleaseKind{ReleaseNothing, ReleaseTaken | 1, ReleaseNothing} {
		if _, r := o.Acknowledge(); r.Kind != want {
			t.Errorf("frame %d is acknowledged: %v, want %v", i+1, r.Kind, want)
		}
	}
}
