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

// lastWords are what the sidecar leaves behind: in its termination message, and
// in the marker of --once for the next process in this pod.
type lastWords struct {
	mu      sync.Mutex // guards message and marker
	message podlife.Message
	marker  *podlife.Log // nil: there is none, or not yet
	log     *podlife.Log
}

// errRestarted says that a sidecar has run in this pod before.
var errRestarted = errors.New("the sidecar of this pod was started again: the job's state was lost with the first one, and it cannot join again")

func (w *lastWords) open(o *options) (err error) {
	w.message = podlife.Message{Kind: podlife.KindSidecar, Pod: max(o.pod, 0)}
	w.log, err = podlife.Open(o.termination)
	return err
}

// first refuses a sidecar in whose pod another one has joined the job. What that knew is
// repeated: the kubelet keeps the words of the latest one.
func (w *lastWords) first(o *options) error {
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

// claim makes the marker. From then on the sidecar has a part of the job's state: one that is
// killed while it waits for its certificate has none, and the next one waits in its place.
func (w *lastWords) claim(o *options) error {
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

// unclaim takes the marker away again.
func (w *lastWords) unclaim(o *options) error {
	w.mu.Lock()
	marker := w.marker
	w.marker = nil
	w.mu.Unlock()
	if marker == nil {
		return nil
	}
	return errors.Join(marker.Close(), os.Remove(o.once))
}

// fail writes a failure at once; the first one stays.
func (w *lastWords) fail(f podlife.Failure) error {
	w.mu.Lock()
	if len(w.message.Failures) == 0 {
		w.message.Failures = []podlife.Failure{f}
	}
	w.mu.Unlock()
	return w.write()
}

// summarize notes what was sent.
func (w *lastWords) summarize(t []podlife.Traffic) {
	w.mu.Lock()
	w.message.Traffic = t
	w.mu.Unlock()
}

// last writes the message for the last time; err is why the sidecar ends.
func (w *lastWords) last(err error, firstRank int) error {
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

func (w *lastWords) write() error {
	w.mu.Lock()
	m, marker := w.message, w.marker
	w.mu.Unlock()
	return errors.Join(marker.Write(&m), w.log.Write(&m))
}
