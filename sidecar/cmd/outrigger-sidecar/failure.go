package main

import (
	"bytes"
	"errors"
	"os"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// failed is told once, on the turn: the recorder's contents are the story.
func (d *daemon) failed(f *core.Failure) {
	if d.ending.Load() {
		return
	}
	seen := &obs.Failure{Rank: f.Rank, Code: f.Code, Reason: f.Reason, Time: d.begun.Add(time.Duration(f.At))}
	d.fault.Store(seen)
	d.told.Go(func() {
		err := d.words.fail(seen.Words())            // first: who has read the log may end this process
		d.log.Warn("job failed", "cause", f.Error()) // by somebody: it is no error of this sidecar
		if err != nil {
			d.log.Error("last words", "cause", err)
		}
	})
	if d.o.flight != "" { // else they are at /debug/flight
		events := d.flight.Snapshot() // here nobody records meanwhile
		d.told.Go(func() { d.dumpFlight(events) })
	}
}

// noMemory notes that a rank could not be attached for want of memory. The rank
// ends with an error of its own, which says less.
func (d *daemon) noMemory(rank uint32, cause error) {
	f := podlife.Failure{Rank: int(rank), Code: 1, Reason: podlife.MemoryShort, Text: "was not attached: " + cause.Error(), Time: time.Now()}
	if err := d.words.fail(f); err != nil {
		d.log.Error("last words", "cause", err)
	}
}

// dumpFlight writes the recorder's events to the file asked for.
func (d *daemon) dumpFlight(events *obs.Flight) {
	var b bytes.Buffer
	if err := errors.Join(events.Dump(&b), os.WriteFile(d.o.flight, b.Bytes(), 0o600)); err != nil {
		d.log.Error("flight recorder", "cause", err)
	}
}
