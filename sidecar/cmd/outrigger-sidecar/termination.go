package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// termination writes the sidecar's termination message, for the kubelet, and a copy of it
// into the marker of --once, for the next sidecar of this pod.
type termination struct {
	mu      sync.Mutex // guards message and marker
	message podlife.Message
	marker  *podlife.Log // nil: there is no --once, or the sidecar has not joined its job
	log     *podlife.Log
}

// errRestarted reports that another sidecar of this pod has joined the job before.
var errRestarted = errors.New("the sidecar of this pod was started again: the job's state was lost with the first one, and it cannot join again")

// open opens the file of the termination message.
func (w *termination) open(o *options) (err error) {
	w.message = podlife.Message{Kind: podlife.KindSidecar, Pod: max(o.pod, 0)}
	w.log, err = podlife.Open(o.termination)
	return err
}

// checkMarker returns errRestarted if another sidecar of this pod has joined the job. It
// copies the failures of that one into the message, since the kubelet keeps only the message
// of the latest container.
func (w *termination) checkMarker(o *options) error {
	if o.once == "" {
		return nil
	}
	switch _, err := os.Lstat(o.once); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--once: %w", err)
	}
	if before, err := podlife.Read(o.once); err == nil && before.Kind == podlife.KindSidecar {
		w.message.Failures = before.Failures
	}
	return fmt.Errorf("--once %s: %w", o.once, errRestarted)
}

// createMarker creates the marker when the sidecar joins the job. A sidecar that is killed
// before that, while it waits for its certificate, has no state of the job, and the next one
// may replace it.
func (w *termination) createMarker(o *options) error {
	if o.once == "" {
		return nil
	}
	w.mu.Lock()
	m := w.message
	w.mu.Unlock()
	marker, err := podlife.Create(o.once, &m)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("--once %s: %w", o.once, errRestarted)
	}
	w.mu.Lock()
	w.marker = marker
	w.mu.Unlock()
	return err
}

// removeMarker removes the marker of a sidecar that did not join the job after all.
func (w *termination) removeMarker(o *options) error {
	w.mu.Lock()
	marker := w.marker
	w.marker = nil
	w.mu.Unlock()
	if marker == nil {
		return nil
	}
	return errors.Join(marker.Close(), os.Remove(o.once))
}

// fail writes the message with a failure at once. Only the first failure is kept.
func (w *termination) fail(f podlife.Failure) error {
	w.mu.Lock()
	if len(w.message.Failures) == 0 {
		w.message.Failures = []podlife.Failure{f}
	}
	w.mu.Unlock()
	return w.write()
}

// setTraffic sets the traffic that the last message reports.
func (w *termination) setTraffic(t []podlife.Traffic) {
	w.mu.Lock()
	w.message.Traffic = t
	w.mu.Unlock()
}

// finish writes the message for the last time; err is the error with which the sidecar ends.
func (w *termination) finish(err error, firstRank int) error {
	if err == nil {
		return w.write()
	}
	f := podlife.Failure{Rank: firstRank, Code: 1, Reason: podlife.SidecarFailed, Text: err.Error(), Time: time.Now()}
	switch {
	case errors.Is(err, errTransport):
		f.Code, f.Reason = exitConfig, podlife.TransportMissing
	case errors.Is(err, errRestarted):
		f.Reason = podlife.SidecarRestarted
	case errors.Is(err, errUndelivered):
		f.Reason = podlife.Undelivered
	}
	return w.fail(f)
}

// write writes the message to the termination log and to the marker.
func (w *termination) write() error {
	w.mu.Lock()
	m, marker := w.message, w.marker
	w.mu.Unlock()
	return errors.Join(marker.Write(&m), w.log.Write(&m))
}
