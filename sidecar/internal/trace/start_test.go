package trace

import (
	"testing"
	"time"
)

// TestStart checks that the phases of a pod's start are slices before those of its engine,
// and end when the rank's first call begins.
func TestStart(t *testing.T) {
	begun := time.Unix(1_700_000_000, 123)
	dur := 5.0
	part := &File{Unit: "ns", Other: Other{Pod: 1, Pods: 1, Epoch: begun.Add(50 * time.Millisecond).UnixNano()}, Events: []ChromeEvent{
		{Name: "recv", Cat: "call", Phase: "X", Time: 2000, Dur: &dur, Pid: 1, Tid: firstTrack + 3*trackStep + 2},
		{Name: "send", Cat: "call", Phase: "X", Time: 1000, Dur: &dur, Pid: 1, Tid: firstTrack + 3*trackStep + 1},
		{Name: "send", Cat: "call", Phase: "X", Time: 10, Dur: &dur, Pid: 1, Tid: firstTrack + 4*trackStep + 1},
		{Name: "eager", Cat: "message", Phase: "X", Time: 1, Dur: &dur, Pid: 1, Tid: firstTrack + 3*trackStep},
	}}
	first, ok := part.FirstCall(3)
	if want := begun.Add(51 * time.Millisecond); !ok || !first.Equal(want) {
		t.Errorf("the first call of rank 3 is at %v, %v, want %v", first, ok, want)
	}
	if at, ok := part.FirstCall(2); ok {
		t.Errorf("rank 2 has made no call, and one is at %v", at)
	}
	start := Start(1, []Phase{
		{"sidecar", -1, begun, begun.Add(10 * time.Millisecond)},
		{"launcher", -1, begun.Add(10 * time.Millisecond), begun.Add(20 * time.Millisecond)},
		{"process", 3, begun.Add(15 * time.Millisecond), first},
	})
	all := Merge([]*File{part, start})
	if err := all.Check(); err != nil {
		t.Error(err)
	}
	if all.Other.Epoch != begun.UnixNano() {
		t.Errorf("the trace begins at %d, want %d", all.Other.Epoch, begun.UnixNano())
	}
	ends := map[string]float64{}
	for i := range all.Events {
		if e := &all.Events[i]; e.Phase == "X" {
			ends[e.Name] = end(e)
		}
	}
	if ends["process"] != 51_000 || ends["sidecar"] != 10_000 || ends["eager"] != 50_006 {
		t.Errorf("slices end at %v", ends)
	}
	if n := all.Counts(); n.Calls != 3 || len(n.Ranks) != 2 {
		t.Errorf("%+v: phases count as calls", n)
	}
	if none := Start(0, nil); len(none.Events) != 0 {
		t.Errorf("%+v", none)
	}
}
