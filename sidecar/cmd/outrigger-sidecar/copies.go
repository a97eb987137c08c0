package main

import (
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
)

// threads returns the number of threads that copy for the engine. tuning is
// bootstrap.Tuning.Helpers. A thread pays only on a processor that no rank and no sidecar
// needs: of two busy processes on one processor, each waits for the other. So by default
// there is one if each process of the job on this machine (sharers) has a processor, and so
// has one thread of each of its pods here. This is decided once, at the start.
func threads(tuning, processors, sharers, pods int) int {
	switch {
	case tuning < 0:
		return 0
	case tuning > 0:
		return tuning
	case processors >= sharers+pods:
		return 1
	}
	return 0
}

// helpers returns the number of threads of this sidecar that copy.
func (d *daemon) helpers() int {
	return threads(d.doc.Tuning.Helpers, wake.Processors(), d.sharers(), d.neighbours()+1)
}

// newCopies returns what the links offload large copies to.
func (d *daemon) newCopies() *copyeng.Copies {
	cfg := copyeng.Config{Kind: "helper"}
	if n := d.helpers(); n > 0 {
		d.log.Info("threads may copy large messages", "threads", n)
		cfg.Open = func(bell int) (lanes []*copyeng.Lane, _ error) {
			for range n {
				h := copyeng.NewHelper(bell)
				lanes = append(lanes, &copyeng.Lane{Channel: h, Alert: h.Alert})
			}
			return lanes, nil
		}
	}
	return copyeng.New(cfg)
}
