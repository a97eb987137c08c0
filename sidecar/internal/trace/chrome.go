package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/outrigger-hpc/outrigger/api/wire"
)

// The Chrome trace event format, as JSON objects ("Trace Event Format", Google, 2016:
// complete events X, flow events s and f, metadata M). Times are microseconds. A process is
// a pod, a thread a track: each rank has one for its messages and as many for its calls as
// were open at once, since slices of a track must nest; the engine has one.

// File is a trace. It opens in Perfetto and in chrome://tracing.
type File struct {
	Events []ChromeEvent `json:"traceEvents"`
	Unit   string        `json:"displayTimeUnit"`
	Other  Other         `json:"otherData"`
}

// Other is the metadata of a trace.
type Other struct {
	Program string `json:"program"`
	Pod     int    `json:"pod"`   // of a part
	Pods    int    `json:"pods"`  // number of pods in the trace
	Epoch   int64  `json:"epoch"` // Unix time of the trace's zero, in nanoseconds
	Lost    uint64 `json:"lost"`  // events that were replaced by newer ones
}

// ChromeEvent is one event.
type ChromeEvent struct {
	Name  string          `json:"name"`
	Cat   string          `json:"cat,omitempty"`
	Phase string          `json:"ph"`
	Time  float64         `json:"ts"`
	Dur   *float64        `json:"dur,omitempty"`
	Pid   int             `json:"pid"`
	Tid   int             `json:"tid"`
	ID    string          `json:"id,omitempty"`
	Bind  string          `json:"bp,omitempty"`
	Args  json.RawMessage `json:"args,omitempty"`
}

// Tracks of a process. Rank r of the world has those from firstTrack+r*trackStep on: its
// messages, and then its calls.
const (
	engineTrack = 1
	firstTrack  = 1000
	trackStep   = 100000 // more than the calls that a rank can have open
)

// Timeline writes a part as a trace, event by event: a whole trace takes several times the
// memory of the recorded events.
type Timeline struct {
	Part      *Part
	Pod       int
	Transport string // the link between pods
	Epoch     int64  // Unix time of the engine's zero, in nanoseconds
}

// WriteTo writes the trace as JSON, in order of time. It sorts the part.
func (t *Timeline) WriteTo(to io.Writer) (int64, error) {
	out := &counted{to: to}
	w := &writer{Timeline: t, buf: bufio.NewWriter(out), tracks: map[int]bool{}, free: map[uint32][]int64{}}
	w.json = json.NewEncoder(w.buf)
	w.text(`{"traceEvents":[`)
	w.meta("process_name", 0, args("name", fmt.Sprintf("pod %d", t.Pod)))
	slices.SortStableFunc(t.Part.events, func(a, b Event) int { return cmp.Compare(a.Since, b.Since) })
	for i := range t.Part.events {
		if w.event(&t.Part.events[i]); w.err != nil {
			return out.n, w.err
		}
	}
	w.text(`],"displayTimeUnit":"ns","otherData":`)
	w.encode(Other{Program: program, Pod: t.Pod, Pods: 1, Epoch: t.Epoch, Lost: t.Part.Lost})
	w.text("}\n")
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return out.n, w.err
}

const program = "outrigger"

// counted counts the written bytes.
type counted struct {
	to io.Writer
	n  int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.n += int64(n)
	return n, err
}

type writer struct {
	*Timeline
	buf    *bufio.Writer
	json   *json.Encoder
	err    error // the first error
	some   bool  // an event was written
	tracks map[int]bool
	free   map[uint32][]int64 // for each rank, the end of the last call on each track of its calls
}

func (w *writer) text(s string) {
	if w.err == nil {
		_, w.err = w.buf.WriteString(s)
	}
}

func (w *writer) encode(v any) {
	if w.err == nil {
		w.err = w.json.Encode(v)
	}
}

func (w *writer) put(e *ChromeEvent) {
	if w.some {
		w.text(",")
	}
	w.some = true
	e.Pid = w.Pod
	w.encode(e)
}

// args encodes the arguments of an event: names and values, which are numbers, bools, and
// strings of printable ASCII.
func args(list ...any) json.RawMessage {
	b := []byte{'{'}
	for i := 0; i < len(list); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, list[i].(string)), ':')
		if s, is := list[i+1].(string); is {
			b = strconv.AppendQuote(b, s)
		} else {
			b = fmt.Append(b, list[i+1])
		}
	}
	return append(b, '}')
}

func (w *writer) meta(what string, track int, a json.RawMessage) {
	w.put(&ChromeEvent{Name: what, Phase: "M", Tid: track, Args: a})
}

// name names a track at its first use.
func (w *writer) name(track int, name string) {
	if w.tracks[track] {
		return
	}
	w.tracks[track] = true
	w.meta("thread_name", track, args("name", name))
	w.meta("thread_sort_index", track, args("sort_index", track))
}

func micro(ns int64) float64 { return float64(ns) / 1e3 }

func (w *writer) slice(name, cat string, track int, e *Event, a json.RawMessage) {
	d := micro(e.Until - e.Since)
	w.put(&ChromeEvent{Name: name, Cat: cat, Phase: "X", Time: micro(e.Since), Dur: &d, Tid: track, Args: a})
}

func (w *writer) event(e *Event) {
	switch e.kind {
	case kindCall:
		w.call(e)
	case kindTurn:
		w.name(engineTrack, "engine")
		w.slice("turn", "engine", engineTrack, e, args("work", e.Bytes))
	default:
		w.message(e)
	}
}

// call draws a call on the first of its rank's tracks that is free.
func (w *writer) call(e *Event) {
	free := w.free[e.Rank]
	i := slices.IndexFunc(free, func(t int64) bool { return t <= e.Since })
	if i < 0 {
		i = len(free)
		free = append(free, 0)
	}
	free[i] = e.Until
	w.free[e.Rank] = free
	track := firstTrack + int(e.Rank)*trackStep + 1 + i
	w.name(track, fmt.Sprintf("rank %d", e.Rank))
	name, list := callName(e.Op, e.Coll), []any{"bytes", e.Bytes, "waits", e.Waits, "status", e.Status}
	if p := peerOf(e.Peer); p >= 0 && e.Coll == 0 {
		name = fmt.Sprintf("%s, rank %d", name, p)
		list = append(list, "peer", p, "tag", e.Tag)
	}
	w.slice(name, "call", track, e, args(list...))
}

// message draws a frame at this end, with the arrow to or from the other end.
func (w *writer) message(e *Event) {
	link := w.Transport
	if e.Local {
		link = "local"
	}
	here, phase, bind := e.Rank, "s", ""
	src, dst := w.Pod, int(e.Pod)
	if e.kind == kindCame {
		here, phase, bind = e.Peer, "f", "e"
		src, dst = dst, src
	}
	track := firstTrack + int(here)*trackStep
	w.name(track, fmt.Sprintf("rank %d messages", here))
	name := wire.Type(e.Op).String()
	w.slice(name, "message", track, e, args("from", e.Rank, "to", e.Peer, "tag", e.Tag, "bytes", e.Bytes, "link", link, "frame", e.Frame))
	w.put(&ChromeEvent{
		Name: name, Cat: "message", Phase: phase, Bind: bind, Time: micro(e.Since), Tid: track,
		ID: fmt.Sprintf("%d>%d.%d", src, dst, e.Frame),
	})
}

// Merge makes one trace from those of several pods. Arrows whose other end was not kept are
// left out; a frame that was received twice keeps its first arrow.
func Merge(parts []*File) *File {
	f := &File{Unit: "ns", Other: Other{Program: program, Pods: len(parts)}}
	for i, p := range parts {
		if i == 0 || p.Other.Epoch < f.Other.Epoch {
			f.Other.Epoch = p.Other.Epoch
		}
		f.Other.Lost += p.Other.Lost
	}
	ends := map[string][2]int{} // how many beginnings and ends each arrow has
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
