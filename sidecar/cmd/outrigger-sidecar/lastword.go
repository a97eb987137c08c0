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
	mu      sync.Mutex // guards message
	message podlife.Message
	log     *podlife.Log
	marker  *podlife.Log
}

// errRestarted says that a sidecar has run in this pod before.
var errRestarted = errors.New("the sidecar of this pod was started again: the job's state was lost with the first one, and it cannot join again")

func (w *lastWords) open(o *options) (err error) {
	w.message = podlife.Message{Kind: podlife.KindSidecar, Pod: max(o.pod, 0)}
	w.log, err = podlife.Open(o.termination)
	return err
}

// claim makes the marker. If it is there, what the first sidecar knew is
// repeated: the kubelet keeps the words of the latest one.
func (w *lastWords) claim(o *options) (err error) {
	if o.once == "" {
		return nil
	}
	w.marker, err = podlife.Create(o.once, &w.message)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if before, err := podlife.Read(o.once); err == nil && before.Kind == podlife.KindSidecar {
		w.message.Failures = before.Failures
	}
	return fmt.Errorf("--once %s: %w", o.once, errRestarted)
}

// unclaim takes the marker away again.
func (w *lastWords) unclaim(o *options) error {
	if w.marker == nil {
		return nil
	}
	err := errors.Join(w.marker.Close(), os.Remove(o.once))
	w.marker = nil
	return err
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
	m := w.message
	w.mu.Unlock()
	return errors.Join(w.marker.Write(&m), w.log.Write(&m))
}
