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
	d.endLost(int(f.Rank))
	if d.o.flight != "" { // else they are at /debug/flight
		events := d.flight.Snapshot() // here nobody records meanwhile
		d.told.Go(func() { d.dumpFlight(events) })
	}
}

// lostGrace is how long a rank because of which the job has failed may live on: most end by
// themselves, and how they do is told. It is longer than a launcher may take to end ranks
// (podlife's toldToEnd), after which their ends are not the cause.
const lostGrace = 5 * time.Second

// endLost has the launcher end a rank of this pod because of which the job has failed, if its
// process lives on: others may not see that the job has failed, since they compute.
func (d *daemon) endLost(rank int) {
	pod := d.doc.Pods[d.o.pod]
	if d.pmi == nil || rank < pod.FirstRank || rank >= pod.FirstRank+pod.Ranks {
		return
	}
	time.AfterFunc(lostGrace, func() {
		if !d.ending.Load() {
			d.pmi.Lost(rank)
		}
	})
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
