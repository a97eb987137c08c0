// Package obs is how a sidecar is watched: log, metrics, health, flight
// recorder and the report of a job's communication.
package obs

import (
	"fmt"
	"io"
	"sync/atomic"
)

// flightEvents is how many protocol events the recorder keeps.
const flightEvents = 4096

// Flight keeps the last protocol events for the post-mortem. One goroutine
// records, without allocation or lock; a dump of a running recorder may tear
// the events that are being written meanwhile.
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

// Snapshot copies the recorder. It is for the goroutine that records, or for
// when nobody does.
func (f *Flight) Snapshot() *Flight {
	s := &Flight{events: f.events}
	s.next.Store(f.next.Load())
	return s
}

// kindRecv is the event whose last number is a rank, -1 for any, and no frame.
const kindRecv = 7

// Dump writes the events as text, oldest first: microseconds before the last
// event, what, peer, rank, tag, bytes, frame.
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
