package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Phase is a part of a pod's start, before its engine knows of a rank.
type Phase struct {
	Name         string
	Rank         int // world rank; -1: the pod as a whole
	Since, Until time.Time
}

// startTrack is the track of a pod's start; that of a rank's start is the last of its own.
const startTrack = 2

// Start returns the start of a pod as a part of a trace.
func Start(pod int, phases []Phase) *File {
	f := &File{Unit: "ns", Other: Other{Program: program, Pod: pod, Pods: 1}}
	if len(phases) == 0 {
		return f
	}
	first := slices.MinFunc(phases, func(a, b Phase) int { return a.Since.Compare(b.Since) })
	f.Other.Epoch = first.Since.UnixNano()
	named := map[int]bool{}
	for _, p := range phases {
		track, name := startTrack, "start"
		if p.Rank >= 0 {
			track, name = firstTrack+p.Rank*trackStep+trackStep-1, fmt.Sprintf("rank %d starts", p.Rank)
		}
		if !named[track] {
			named[track] = true
			f.Events = append(f.Events, ChromeEvent{Name: "thread_name", Phase: "M", Pid: pod, Tid: track, Args: args("name", name)})
		}
		dur := micro(max(0, p.Until.UnixNano()-p.Since.UnixNano())) // on one clock, like Time
		f.Events = append(f.Events, ChromeEvent{Name: p.Name, Cat: "start", Phase: "X", Time: micro(p.Since.UnixNano() - f.Other.Epoch), Dur: &dur, Pid: pod, Tid: track})
	}
	return f
}

// FirstCall returns when a rank's first call in the trace began, or false if there is none.
func (f *File) FirstCall(rank int) (time.Time, bool) {
	from := firstTrack + rank*trackStep
	var first *ChromeEvent
	for i := range f.Events {
		e := &f.Events[i]
		if e.Cat == "call" && e.Tid > from && e.Tid < from+trackStep && (first == nil || cmp.Less(e.Time, first.Time)) {
			first = e
		}
	}
	if first == nil {
		return time.Time{}, false
	}
	return time.Unix(0, f.Other.Epoch+int64(first.Time*1e3)), true
}
