// Package obs makes a sidecar observable: metrics, health, flight recorder, timeline, and
// the report of a job's communication.
//
// A handler reads its data from Sources, which ask the engine between two turns. Handler is
// for the network, and bounds and caches what clients cost; LocalHandler is for programs of
// the pod; Starting answers while a sidecar starts.
package obs

import (
	"fmt"
	"io"
	"sync/atomic"
)

// flightEvents is the number of kept protocol events, about 200 KiB.
const flightEvents = 4096

// Flight keeps the last protocol events for the report after a failure. One goroutine
// records, without allocation or lock; a dump of a running recorder may contain torn events
// that are being written meanwhile.
type Flight struct {
	events [flightEvents]event
	next   atomic.Uint64
}

type event struct {
	now            int64
	kind           uint8
	peer           int32
	rank           uint32
	tag, size, seq uint64
}

// kinds are the names of core.NoteKind.
var kinds = [...]string{"", "post", "arrive", "up", "down", "failed", "coll", "recv"}

// Record stores an event.
func (f *Flight) Record(now int64, kind uint8, peer int32, rank uint32, tag, size, seq uint64) {
	n := f.next.Load()
	f.events[n%flightEvents] = event{now, kind, peer, rank, tag, size, seq}
	f.next.Store(n + 1)
}

// Snapshot copies the recorder. It is for the goroutine that records, or for a recorder
// that is not in use.
func (f *Flight) Snapshot() *Flight {
	s := &Flight{events: f.events}
	s.next.Store(f.next.Load())
	return s
}

// kindRecv is the kind of events whose last number is a rank (-1: any) and not a frame.
const kindRecv = 7

// Dump writes the events as text, oldest first: microseconds before the last event, kind,
// peer, rank, tag, bytes, frame.
func (f *Flight) Dump(w io.Writer) error {
	end := f.next.Load()
	start := uint64(0)
	if end > flightEvents {
		start = end - flightEvents
	}
	if end == 0 {
		return nil
	}
	last := f.events[(end-1)%flightEvents].now
	for i := start; i < end; i++ {
		e := &f.events[i%flightEvents]
		name, number := "?", fmt.Sprint("frame=", e.seq)
		if int(e.kind) < len(kinds) {
			name = kinds[e.kind]
		}
		if e.kind == kindRecv {
			number = fmt.Sprint("from=", int32(e.seq))
		}
		if _, err := fmt.Fprintf(w, "%12.3f us  %-7s peer=%d rank=%d tag=%#x bytes=%d %s\n",
			float64(e.now-last)/1e3, name, e.peer, int32(e.rank), e.tag, e.size, number); err != nil {
			return err
		}
	}
	return nil
}
