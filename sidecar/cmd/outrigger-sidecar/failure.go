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

// jobFailed records the job's first failure. The engine calls it once, on a turn. The
// termination message is written before the log: a reader of the log may end this process.
func (d *daemon) jobFailed(f *core.Failure) {
	if d.ending.Load() {
		return
	}
	failure := &obs.Failure{Rank: f.Rank, Code: f.Code, Reason: f.Reason, Time: d.begun.Add(time.Duration(f.At))}
	d.failure.Store(failure)
	d.writers.Go(func() {
		err := d.message.fail(failure.Words())
		d.log.Warn("job failed", "cause", f.Error()) // a warning: it is no error of this sidecar
		if err != nil {
			d.log.Error("termination message", "cause", err)
		}
	})
	d.endLost(int(f.Rank))
	if d.o.flight != "" { // else the events are at /debug/flight
		events := d.flight.Snapshot() // runs in the turn, in which events are recorded
		d.writers.Go(func() { d.dumpFlight(events) })
	}
}

// lostGrace is the time that a rank which made the job fail gets to end by itself: most do,
// and their exit codes are reported. It is longer than the time in which a launcher ends
// ranks (podlife's toldToEnd), after which their ends are not taken for the cause.
const lostGrace = 5 * time.Second

// endLost has the launcher end a rank of this pod that made the job fail, if its process is
// still alive after lostGrace: other ranks of the pod may compute and not notice the failure.
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

// noMemory records that a rank was not attached because there is too little memory. The
// rank's own error has fewer details.
func (d *daemon) noMemory(rank uint32, cause error) {
	f := podlife.Failure{Rank: int(rank), Code: 1, Reason: podlife.MemoryShort, Text: "was not attached: " + cause.Error(), Time: time.Now()}
	if err := d.message.fail(f); err != nil {
		d.log.Error("termination message", "cause", err)
	}
}

// dumpFlight writes the recorder's events to the file of --flight.
func (d *daemon) dumpFlight(events *obs.Flight) {
	var b bytes.Buffer
	if err := errors.Join(events.Dump(&b), os.WriteFile(d.o.flight, b.Bytes(), 0o600)); err != nil {
		d.log.Error("flight recorder", "cause", err)
	}
}
