package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
)

const (
	drainPause = 2 * time.Millisecond // delay between two checks of undelivered messages
	// drainFailed bounds the drain of a failed job, which delivers only the failure.
	drainFailed = time.Second
)

// errUndelivered reports that messages were lost because the sidecar ended.
var errUndelivered = errors.New("not everything was delivered")

// drain waits until peers have acknowledged the messages of this pod's ranks and the
// Goodbye. The ranks of this pod have ended, but the receivers may still be at work, or not
// have started.
func (d *daemon) drain() error {
	d.engine.Leave()
	begun := time.Now()
	for {
		left, err := d.engine.Leftover()
		if err != nil || left.None() {
			return nil // the engine has ended, and the job with it
		}
		failed, waited := d.failure.Load() != nil, time.Since(begun)
		switch {
		case failed && waited > min(d.o.drain, drainFailed):
			return nil
		case !failed && waited > d.o.drain:
			return d.undelivered(left)
		}
		time.Sleep(drainPause)
	}
}

// undelivered returns an error that lists the messages that are lost if the sidecar ends
// now, or nil if there are none.
func (d *daemon) undelivered(left core.Leftover) error {
	var list []string
	frames := left.Sends
	if left.Sessions > 0 {
		list = append(list, fmt.Sprintf("%d ranks are still attached", left.Sessions))
	}
	if left.Sends > 0 {
		list = append(list, fmt.Sprintf("%d messages were not received", left.Sends))
	}
	for _, p := range left.Peers {
		frames += p.Frames
		text := fmt.Sprintf("pod %d has not acknowledged %d frames", p.Peer, p.Frames)
		if !p.Reached {
			text += " and was never reached at " + d.doc.Pods[p.Peer].Address
		}
		list = append(list, text)
	}
	text := strings.Join(list, "; ")
	d.log.Warn("ending with work left", "drain", d.o.drain, "left", text)
	if frames == 0 {
		return nil
	}
	return fmt.Errorf("%w within %v (--drain): %s", errUndelivered, d.o.drain, text)
}
