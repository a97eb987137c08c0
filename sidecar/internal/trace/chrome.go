package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/wire"
)

// The Chrome trace event format, as JSON objects ("Trace Event Format", Google,
// 2016: complete events X, flow events s and f, metadata M). Times are
// microseconds. A process is a pod, a thread a track: of a rank one for its
// messages and as many for its calls as were open at once, since slices of a
// track must nest; and one for the engine.

// File is a trace. It opens in Perfetto and in chrome://tracing.
type File struct {
	Events []ChromeEvent `json:"traceEvents"`
	Unit   string        `json:"displayTimeUnit"`
	Other  Other         `json:"otherData"`
}

// Other is what a trace says of itself.
type Other struct {
	Program string `json:"program"`
	Pod     int    `json:"pod"`   // of a part
	Pods    int    `json:"pods"`  // in the trace
	Epoch   int64  `json:"epoch"` // nanoseconds of Unix time at the trace's zero
	Lost    uint64 `json:"lost"`  // events that were older than what was kept
}

// ChromeEvent is one event.
type ChromeEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	Time  float64        `json:"ts"`
	Dur   *float64       `json:"dur,omitempty"`
	Pid   int            `json:"pid"`
	Tid   int            `json:"tid"`
	ID    string         `json:"id,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// Tracks of a process. Rank r of the world has those from firstTrack+r*trackStep
// on: its messages, and then its calls.
const (
	engineTrack = 1
	firstTrack  = 1000
	trackStep   = 100000 // more than a rank can have calls open
)

// Chrome turns what a sidecar has recorded into a trace. transport names the link
// between pods, epoch is the Unix time of the engine's zero.
func (p *Part) Chrome(pod int, transport string, epoch int64) *File {
	f := &File{Unit: "ns", Other: Other{Program: "outrigger", Pod: pod, Pods: 1, Epoch: epoch, Lost: p.Lost}}
	w := &writer{f: f, pod: pod, transport: transport, tracks: map[int]string{}}
	w.meta("process_name", 0, map[string]any{"name": fmt.Sprintf("pod %d", pod)})
	calls := map[uint32][]Event{}
	for _, e := range p.events {
		switch e.kind {
		case kindCall:
			calls[e.Rank] = append(calls[e.Rank], e)
		case kindTurn:
			w.name(engineTrack, "engine")
			w.slice("turn", "engine", engineTrack, &e, map[string]any{"work": e.Bytes})
		default:
			w.message(&e)
		}
	}
	for rank, list := range calls {
		w.calls(rank, list)
	}
	slices.SortStableFunc(f.Events, func(a, b ChromeEvent) int { return cmp.Compare(a.Time, b.Time) })
	return f
}

type writer struct {
	f         *File
	pod       int
	transport string
	tracks    map[int]string
}

func (w *writer) meta(what string, track int, args map[string]any) {
	w.f.Events = append(w.f.Events, ChromeEvent{Name: what, Phase: "M", Pid: w.pod, Tid: track, Args: args})
}

// name names a track the first time.
func (w *writer) name(track int, name string) {
	if w.tracks[track] != "" {
		return
	}
	w.tracks[track] = name
	w.meta("thread_name", track, map[string]any{"name": name})
	w.meta("thread_sort_index", track, map[string]any{"sort_index": track})
}

func micro(ns int64) float64 { return float64(ns) / 1e3 }

func (w *writer) slice(name, cat string, track int, e *Event, args map[string]any) {
	d := micro(e.Until - e.Since)
	w.f.Events = append(w.f.Events, ChromeEvent{Name: name, Cat: cat, Phase: "X", Time: micro(e.Since), Dur: &d, Pid: w.pod, Tid: track, Args: args})
}

// calls draws a rank's calls, each on the first track that is free.
func (w *writer) calls(rank uint32, list []Event) {
	slices.SortStableFunc(list, func(a, b Event) int { return cmp.Compare(a.Since, b.Since) })
	var free []int64 // by track, when its last call ended
	for i := range list {
		e := &list[i]
		lane := slices.IndexFunc(free, func(t int64) bool { return t <= e.Since })
		if lane < 0 {
			lane = len(free)
			free = append(free, 0)
		}
		free[lane] = e.Until
		track := firstTrack + int(rank)*trackStep + 1 + lane
		w.name(track, fmt.Sprintf("rank %d", rank))
		name, args := callName(e.Op, e.Coll), map[string]any{"bytes": e.Bytes, "waits": e.Waits, "status": e.Status}
		if p := peerOf(e.Peer); p >= 0 && e.Coll == 0 {
			name = fmt.Sprintf("%s, rank %d", name, p)
			args["peer"], args["tag"] = p, e.Tag
		}
		w.slice(name, "call", track, e, args)
	}
}

// message draws a frame at its end here, with the arrow to or from the other.
func (w *writer) message(e *Event) {
	link := w.transport
	if e.Local {
		link = "local"
	}
	here, phase, bind := e.Rank, "s", ""
	src, dst := w.pod, int(e.Pod)
	if e.kind == kindCame {
		here, phase, bind = e.Peer, "f", "e"
		src, dst = dst, src
	}
	track := firstTrack + int(here)*trackStep
	w.name(track, fmt.Sprintf("rank %d messages", here))
	name := wire.Type(e.Op).String()
	w.slice(name, "message", track, e, map[string]any{"from": e.Rank, "to": e.Peer, "tag": e.Tag, "bytes": e.Bytes, "link": link, "frame": e.Frame})
	w.f.Events = append(w.f.Events, ChromeEvent{
		Name: name, Cat: "message", Phase: phase, Bind: bind, Time: micro(e.Since), Pid: w.pod, Tid: track,
		ID: fmt.Sprintf("%d>%d.%d", src, dst, e.Frame),
	})
}

// Merge makes one trace of those of several pods. Arrows of which one end is not
// kept are left out; a frame that came again keeps its first arrow.
func Merge(parts []*File) *File {
	f := &File{Unit: "ns", Other: Other{Program: "outrigger", Pods: len(parts)}}
	for i, p := range parts {
		if i == 0 || p.Other.Epoch < f.Other.Epoch {
			f.Other.Epoch = p.Other.Epoch
		}
		f.Other.Lost += p.Other.Lost
	}
	ends := map[string][2]int{} // of arrows: how many begin and end
	for _, p := range parts {
		shift := micro(p.Other.Epoch - f.Other.Epoch)
		for _, e := range p.Events {
			if e.Phase != "M" {
				e.Time += shift
			}
			n := ends[e.ID]
			switch e.Phase {
			case "s":
				n[0]++
			case "f":
				n[1]++
			}
			if e.ID != "" {
				ends[e.ID] = n
			}
			f.Events = append(f.Events, e)
		}
	}
	drawn := map[string]bool{}
	f.Events = slices.DeleteFunc(f.Events, func(e ChromeEvent) bool {
		if e.ID == "" {
			return false
		}
		n, key := ends[e.ID], e.Phase+e.ID
		if n[0] == 0 || n[1] == 0 || drawn[key] {
			return true
		}
		drawn[key] = true
		return false
	})
	slices.SortStableFunc(f.Events, func(a, b ChromeEvent) int { return cmp.Compare(a.Time, b.Time) })
	return f
}
